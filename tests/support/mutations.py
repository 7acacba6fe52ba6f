"""Bugs that the tests must notice, and a script that measures how many they do.

    python tests/support/mutations.py [--tests FOLDER] [--only WORD] [--jobs N]

Each mutation is applied to a copy of the checkout, in which the tests that it names must then fail. Before a
test is removed: add here the bugs that it guards against, and see that another one fails for each. --tests
takes another version of tests/, to compare both.
"""

import argparse
import multiprocessing
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest
import torch  # noqa: F401 for the processes below
import torchvision  # noqa: F401

ROOT = Path(__file__).parents[2]
OF_ALL_OPS = "layers/test_contract.py"


class Mutation(NamedTuple):
    """A bug: the only place of `old` in a file of detector/ becomes `new`."""

    file: str
    old: str
    new: str
    tests: str  # files of tests/, of which at least one test must fail


MUTATIONS = [
    Mutation(file, old, new, tests)
    for tests, file, changes in [
        (
            "layers/test_quick_gelu.py layers/test_contract.py layers/test_func.py",
            "layers/quick_gelu.py",
            [
                ("(2 + z.clamp(", "(1 + z.clamp("),
                ("z.clamp(-largest, largest)", "z"),
                ("return torch.empty_like(input)\n\n\n@", "return input.new_empty(input.numel())\n\n\n@"),
                ("grad_of_grad = _grad_input(grad_grad, input)", "grad_of_grad = _grad_input(grad, input)"),
            ],
        ),
        (
            "layers/test_autograd.py layers/test_func.py",
            "layers/_autograd.py",
            [
                ("if in_forward_mode and jvp is None:", "if False:"),
                ("return call(tangents[0], *", "return call(arguments[0], *"),
                ("if torch._C._is_any_autocast_enabled():", "if False:"),
                ("return tuple(needs and next(wanted)", "return tuple(next(wanted)"),
                ("if info.batch_size == 0:", "if False:"),
            ],
        ),
        (
            "layers/test_func.py",
            "layers/_vmap.py",
            [
                ("image + first, -1)", "image, -1)"),
                ('folded["images"] *= size', 'folded["images"] *= 1'),
                ("argument.select(dim, i)", "argument.select(dim, 0)"),
                ("else tensor.movedim(dim, 0)", "else tensor"),
            ],
        ),
        (
            "layers/test_nms.py layers/test_nms_arguments.py layers/test_contract.py layers/test_func.py",
            "layers/nms.py",
            [
                (
                    "return boxes.new_empty(scores.shape, dtype=torch.bool)",
                    "return boxes.new_empty(scores.shape)",
                ),
                ("return torch.searchsorted(values.sort()[0], values)", "return values.long()"),
                ("groups + torch.searchsorted(", "groups + 0 * torch.searchsorted("),
                ("return boxes.new_empty(num_kept, dtype=torch.int64)", "return boxes.new_empty(num_kept)"),
                ("_device_type, torch.float32)", "_device_type, torch.bfloat16)"),
            ],
        ),
        (
            "layers/test_pcl_loss.py layers/test_pcl_loss_arguments.py layers/test_pcl_loss_compat.py"
            " layers/test_contract.py layers/test_func.py",
            "layers/pcl_loss.py",
            [
                ("return losses.to(probs.dtype)", "return losses"),
                ("clusters = clusters.masked_fill(background, -1)", "clusters = clusters"),
                ("else torch.float32\n    losses", "else probs.dtype\n    losses"),
                ("flatten() / pc_count.flatten()", "flatten()"),
                ("(values >= 0) & (values < end))", "(values >= 0) & (values <= end))"),
                ("raise NotImplementedError(", "return (None,) * 5\n    raise NotImplementedError("),
                ("if probs.dtype == torch.float64 else torch.float32", "if probs.dtype else torch.float32"),
                ("ctx.mark_non_differentiable(slopes)", "pass"),
            ],
        ),
        (
            "layers/test_proposal_clusters.py layers/test_proposal_clusters_arguments.py layers/test_func.py"
            " layers/test_contract.py modeling/test_refinement.py",
            "layers/proposal_clusters.py",
            [
                ('("nms_iou", nms_iou) if method == "mist"', '("nms_iou", graph_iou) if method == "mist"'),
                ("member = overlap >= member_iou", "member = overlap > member_iou"),
                ("ignored = overlap < ignore_iou", "ignored = overlap <= ignore_iou"),
                ("classes[nearest] + 1, 0)", "classes[nearest], 0)"),
                ("torch.where(ignored, 0, weights[nearest])", "weights[nearest]"),
                ("& (area > 0)", ""),
                ("if times > 1 or not", "if not"),
                ("ignored |= ~member & ", "ignored |= "),
                ("scores.transpose(0, 1).flatten(1, 2)", "scores.flatten(0, 1).unflatten(0, (1, -1))"),
            ],
        ),
        (
            "layers/test_roi_ops.py layers/test_roi_pool.py layers/test_drop_in.py"
            " layers/test_contract.py layers/test_func.py",
            "layers/roi_pool.py",
            [
                ("self.output_size, self.spatial_scale)", "self.output_size)"),
                ("images, grad.shape[1], height, width)", "images, height, width, grad.shape[1])"),
                ("torch.empty_like(pooled, dtype=torch.int32)", "torch.empty_like(pooled)"),
            ],
        ),
        (
            "layers/test_roi_ops.py layers/test_roi_align.py layers/test_contract.py layers/test_func.py",
            "layers/roi_align.py",
            [
                (
                    "boxes.shape[0], *((*size, channels) if channels_last else (channels, *size)))",
                    "boxes.shape[0], channels, *size)",
                ),
                (
                    "grad.new_empty(images, *((*size, channels) if channels_last else (channels, *size)))",
                    "grad.new_empty(images, channels, *size)",
                ),
                ("grad.shape[1:3] if ctx.options[-1] else grad.shape[2:]", "grad.shape[2:]"),
                ("return result.permute(0, 3, 1, 2) if channels_last else result", "return result"),
            ],
        ),
        (
            "layers/test_trilinear_interpolate.py layers/test_contract.py layers/test_func.py",
            "layers/trilinear_interpolate.py",
            [
                ("feats if ctx.needs_input_grad[1] else None", "feats"),
                ("with torch.autocast(upstream_points.device.type, enabled=False):", "if True:"),
                ("feats.new_empty(feats.shape[0], feats.shape[2])", "feats.new_empty(feats.shape[0], 8)"),
                ("autocast=torch.float32,", "autocast=torch.bfloat16,"),
                ("(0,) if feats is None else points.shape)", "points.shape)"),
                ("x * xz + y * yz], 1)\n    return grad_grad", "x * xz + z * yz], 1)\n    return grad_grad"),
            ],
        ),
        (
            "layers/test_lltm.py layers/test_contract.py layers/test_func.py",
            "layers/lltm.py",
            [
                ("raise NotImplementedError(", "return (None,) * 11\n    raise NotImplementedError("),
                ("input.new_empty((0,) if", "input.new_empty((1,) if"),
                ("ctx.mark_non_differentiable(*for_backward)", "pass"),
                ("cs.new_empty(shape if needed else (0,))", "cs.new_empty(shape)"),
            ],
        ),
        (
            "layers/test_depthwise_conv2d.py layers/test_contract.py layers/test_func.py",
            "layers/depthwise_conv2d.py",
            [
                ("(grad.shape[1], 1, *kernel)", "(grad.shape[1], *kernel, 1)"),
                ("memory_format=memory_format(tensor))", "memory_format=torch.contiguous_format)"),
            ],
        ),
        (
            "layers/test_soft_nms.py layers/test_contract.py",
            "layers/soft_nms.py",
            [
                ("lowered[order].to(scores.dtype)", "lowered[order]"),
                ("return scores.new_empty(scores.shape)", "return scores.new_empty(0)"),
            ],
        ),
        (
            "layers/test_nms_rotated.py layers/test_contract.py",
            "layers/nms_rotated.py",
            [("dtype=torch.bool)", "dtype=torch.int64)"), ("boxes = boxes.float()", "pass")],
        ),
        (
            "layers/test_roi_align_rotated.py layers/test_contract.py layers/test_func.py",
            "layers/roi_align_rotated.py",
            [
                ("self.sampling_ratio)", "0)"),
                ("(images, height, width, grad.shape[3])", "(images, grad.shape[3], height, width)"),
            ],
        ),
        (
            "layers/test_upsample_bilinear2d.py layers/test_contract.py",
            "layers/upsample_bilinear2d.py",
            [
                (
                    "tensor.new_empty(shape).contiguous(memory_format=memory_format(tensor))",
                    "tensor.new_empty(shape)",
                )
            ],
        ),
        (
            "modeling/test_criterion.py",
            "modeling/criterion.py",
            [
                (".clamp(1e-6, 1 - 1e-6)  # (B, C)", "  # (B, C)"),
                ("losses.masked_fill(unknown, 0)", "losses"),
                ("losses = losses.where(valid, torch.nan)", "losses = losses"),
                ('if reduction == "mean" else', 'if reduction == "sum" else'),
                ("probs[:-1, :, 1:]]).detach()", "probs[:-1, :, 1:]])"),
                ("weight * loss for k", "loss for k"),
                ("* (counts > 0).to(losses.device, non_blocking=True)", ""),
                ("weight=known)", "weight=None)"),
                ("probs[:-1, :, 1:]]", "probs[1:, :, 1:]]"),
                ("probs = probs / probs.sum(dim=2, keepdim=True).clamp(min=1e-9)", ""),
            ],
        ),
        (
            "modeling/test_refinement.py",
            "modeling/refinement.py",
            [
                ("-pseudo.weights * (chosen", "-(chosen"),
                ("[best]) >= nms_iou", "[best]) > 1.5 * nms_iou"),
                ("max(1, int(len(boxes) * top_share))", "int(len(boxes) * top_share)"),
                ("seeds, of_class = seeds[~earlier], of_class[~earlier]", ""),
                ("counts.repeat(len(probs))", "counts.repeat_interleave(len(probs))"),
            ],
        ),
        (
            "modeling/test_postprocess.py",
            "modeling/postprocess.py",
            [
                ("scores.scores > score_threshold", "scores.scores >= score_threshold"),
                ("keep[: max_detections * scores.tiles]", "keep"),
                (".indices[: max_per_class * scores.tiles]", ".indices[: scores.tiles]"),
                ("overlap >= voting_iou", "overlap > voting_iou"),
                ("overlap * scores", "scores"),
                ("boxes, values, labels, nms_threshold)  #", "boxes, values, labels * 0, nms_threshold)  #"),
            ],
        ),
        (
            "evaluation/test_voc_metrics.py",
            "evaluation/voc.py",
            [
                ("-(-step * num_objects // 10)", "round(step * num_objects / 10)"),
                ('np.argsort(-scores, kind="stable")', 'np.argsort(scores, kind="stable")'),
                ("counts = np.append(~difficult, True)[match]", "counts = np.ones(len(match), dtype=bool)"),
                ("counts &= is_tp | (crowd_match < 0)", ""),
                ("overlaps[best] >= threshold", "overlaps[best] > threshold"),
                ("boxes.double()) > iou_threshold", "boxes.double()) >= iou_threshold"),
                ("same_class = labels[:, None] == classes[None, :]", "same_class = overlap | True"),
                ("whole = own if share else own + other - inside", "whole = own + other - inside"),
                ("counted = ~torch.stack(", "counted = torch.stack("),
                (
                    "annotation.boxes[~annotation.crowd], annotation.labels[~annotation.crowd]",
                    "annotation.boxes, annotation.labels",
                ),
            ],
        ),
        (
            "evaluation/test_errors.py",
            "evaluation/errors.py",
            [
                ("halves.sum(dim=1) >= 2", "halves.sum(dim=1) >= 1"),
                ("if truth.difficult[column]:", "if False:"),
                ("= -1  # matched", "= overlap[:, column]"),
            ],
        ),
        (
            "evaluation/test_coverage.py",
            "evaluation/coverage.py",
            [(">= iou_threshold for", "> iou_threshold for")],
        ),
        (
            "structures/test_boxes.py",
            "structures/boxes.py",
            [
                (".clamp(min=0).prod(dim=2)", ".prod(dim=2)"),
                ("[width - x2, y1, width - x1, y2]", "[width - x1, y1, width - x2, y2]"),
                (".clamp(max=_MAX_LOG_SCALE)", ""),
                ("clamp(min=_MIN_SIZE)", "clamp(min=0)"),
            ],
        ),
        (
            "config/test_reader.py config/test_settings.py engine/test_build.py",
            "config/rules.py",
            [
                ("list(steps) == sorted(steps)", "True"),
                ("cfg.model.drop_block.size % 2 == 1", "True"),
                ("solver.warmup_iters >= solver.max_iter", "False"),
                ('yield ":" not in backbone.timm_name,', "yield True,"),
            ],
        ),
        (
            "config/test_reader.py config/test_settings.py",
            "config/yaml_files.py",
            [
                ("if file.resolve() in [earlier.resolve() for earlier in known]:", "if False:"),
                ('if count < int(header[1]) or not text.endswith("\\n"):', "if False:"),
                ("if is_alias and not _is_plain(node):", "if False:"),
                ("if names.count(name) > 1", "if False"),
                ("return chain[::-1]", "return chain"),
                ("if self.nodes > _MAX_NODES:", "if False:"),
                ("    if content is None:", "    if False:"),
            ],
        ),
        (
            "config/test_reader.py config/test_settings.py",
            "config/reader.py",
            [
                ("KEYS[key].check(values[key])", "pass"),
                ("if training not in KEYS[key].resume]", "if False]"),
                ("folder = folder.parent  #", "folder = folder  #"),
                ("return configured if folder is None or", "return configured if True or"),
                ("        if key not in KEYS:", "        if False:"),
            ],
        ),
        (
            "utils/test_folder_lock.py",
            "utils/folder_lock.py",
            [("fcntl.lockf(", "fcntl.flock("), ("path.rmdir()", "pass")],
        ),
        (
            "utils/test_command_line.py",
            "utils/command_line.py",
            [('errors="backslashreplace"', 'errors="strict"')],
        ),
        (
            "data/test_images.py",
            "data/images.py",
            [
                (" or not _can_allocate(_DECODER_BYTES * size[0] * size[1]):", ":"),
                ("if Path(path).stat().st_size == 0:", "if False:"),
                ("if isinstance(error, UnidentifiedImageError):", "if False:"),
                ("if not (low >= 0 and high <= 255):", "if low < 0 or high > 255:"),
                ("if low < 0 or high > white:", "if high > white:"),
            ],
        ),
        (
            "data/test_loader.py",
            "data/worker_loader.py",
            [("str(error.args[0]).rpartition(", "str(error).rpartition(")],
        ),
        (
            "inference/test_student.py",
            "inference/exported_student.py",
            [
                ("boxes[keep] * scale[index]", "boxes[keep]"),
                ("images.shape[0]) < self.limits.max", "images.shape[0]) <= self.limits.max"),
                ("batch) < network.post_nms_top_n()]", "batch) < 3]"),
                ("append(likely, count, -torch.inf)", "append(likely, count)"),
                ("group = torch.arange(batch * len(maps))", "group = 0 * torch.arange(batch * len(maps))"),
                ("of[rows] * scores.shape[1] + labels", "labels"),
                ("places < content", "places <= content"),
            ],
        ),
        (
            "data/datasets/test_voc.py",
            "data/datasets/voc.py",
            [
                ("    if not found:", "    if False:"),
                ("    if count > 1:", "    if False:"),
                ("    if bndbox is None:", "    if False:"),
                ("float(text) != 0", 'text == "1"'),
                ("an object of {unknown_class(name, columns)}", "an unknown class"),
            ],
        ),
        (
            "data/datasets/test_coco.py",
            "data/datasets/coco.py",
            [
                ("if np.isinf(areas).any():", "if False:"),
                ("if len(set(values)) < len(values):", "if False:"),
                ("    if not good.all():", "    if False:"),
                ("& (sizes <= LONGEST_SIDE)", ""),
                ("& (sizes == np.floor(sizes))", ""),
                ("if numbers.shape == (len(rows), *shape):", "if True:"),
            ],
        ),
        (
            "data/proposals/test_file.py",
            "data/proposals/file.py",
            [
                ("        if missing:", "        if False:"),
                ("(self.sizes[rows] != sizes).any(axis=1)", "(self.sizes[rows] != sizes).all(axis=1)"),
                ("_checksum(boxes) != self._checksums[row]", "False"),
                ("if len(boxes) != count:", "if False:"),
                ("& (x1 <= x2) &", "&"),
            ],
        ),
        (
            "engine/test_checkpoint.py",
            "engine/checkpoint.py",
            [
                ("if not isinstance(state, dict) or not _TYPES.keys() <= state.keys():", "if False:"),
                ("if problem := _wrong_type(state):", "if False:"),
                ("if TorchVersion(version) > __version__:", "if False:"),
            ],
        ),
        (
            "review/test_store.py",
            "review/store.py",
            [('self._file.execute("COMMIT")', 'self._file.execute("ROLLBACK")')],
        ),
        (
            "utils/test_records.py",
            "utils/records.py",
            [("if not checksum or checksum != _checksum(content):", "if not checksum:")],
        ),
        (
            "utils/test_npz.py",
            "utils/npz.py",
            [("if (array.dtype.kind, array.ndim) != (kind, dimensions):", "if False:")],
        ),
        (
            "utils/test_torch_file.py",
            "utils/torch_file.py",
            [("or depth == _DEEPEST", "")],
        ),
        (
            "utils/test_outputs.py",
            "utils/outputs.py",
            [("            if _mode(path) and not self.made(name):", "            if False:")],
        ),
        (
            "utils/test_files.py",
            "utils/files.py",
            [("return stat.S_IMODE(os.stat(path).st_mode)", "return 0o644")],
        ),
        (
            "data/formats/test_formats.py",
            "utils/xml.py",
            [('raise DataError("it has a <!DOCTYPE>, which is not allowed: delete that line")', "pass")],
        ),
        (
            "data/test_orientation.py",
            "data/orientation.py",
            [("    if assumed:", "    if False:")],
        ),
        (
            "data/teacher/test_read.py",
            "data/orientation.py",
            [("not (of_upright or picture.stated)", "not of_upright")],
        ),
        (
            "data/test_orientation.py",
            "commands/check.py",
            [("not dataset.orientation_known:", "False:")],
        ),
        (
            "data/test_build.py",
            "data/build.py",
            [("    for line in doubtful_classes(", "    for line in [] and doubtful_classes(")],
        ),
        (
            "data/datasets/test_image_table.py",
            "data/datasets/image_table.py",
            [('in ("|", ",")', 'in (",",)')],
        ),
        (
            "data/proposals/test_restricted_pickle.py",
            "data/proposals/restricted_pickle.py",
            [
                (
                    "        if (module, name) not in _KNOWN:",
                    "        if (module, name) not in _KNOWN:\n"
                    "            return super().find_class(module, name)\n        if False:",
                )
            ],
        ),
        (
            "engine/test_build.py",
            "modeling/backbones/build.py",
            [
                ("    if value not in allowed:", "    if False:"),
                ("    except ImportError:", "    except KeyError:"),
            ],
        ),
        (
            "engine/test_build.py",
            "inference/results.py",
            [
                (" + file_digest(weights)).encode()", ").encode()"),
                ("if test in KEYS[key].affects", "if True"),
            ],
        ),
        (
            "engine/test_loop.py",
            "engine/checkpoint.py",
            [('state["scaler"] = scaler.state_dict()', "pass")],
        ),
        (
            "engine/test_loop_distributed.py",
            "engine/progress_log.py",
            [("purge_step=start + 1) if is_main() else None", "purge_step=start + 1)")],
        ),
        (
            "engine/test_loss_log.py",
            "engine/loss_log.py",
            [("if not math.isfinite(scalar.value)]", "if scalar is None]")],
        ),
        (
            "inference/test_load.py",
            "inference/load.py",
            [
                ('    if file.suffix.lower() in (".yaml", ".yml"):', "    if False:"),
                ("Real) and 0 <= score_threshold <= 1)", "Real))"),
            ],
        ),
        (
            "tools/test_predict.py",
            "commands/predict.py",
            [("        if outputs.path(file).resolve() in inputs:", "        if False:")],
        ),
        (
            "tools/test_train_net.py",
            "engine/run_folder.py",
            [("    if saved and differing:", "    if False:")],
        ),
        (
            "tools/test_report.py",
            "reporting/build.py",
            [
                (
                    '    path = folder / "metrics.json"\n    if not path.is_file():',
                    '    path = folder / "metrics.json"\n    if False:',
                )
            ],
        ),
    ]
    for old, new in changes
]


def copy_checkout(target: Path, tests: Path) -> None:
    """What tests read; of detector/ a real copy, of all else links."""
    ignored = shutil.ignore_patterns("__pycache__", "*.so")
    shutil.copytree(ROOT / "detector", target / "detector", ignore=ignored)
    (target / "tests").symlink_to(tests.resolve())
    for path in [*ROOT.glob("detector/*.so"), *ROOT.iterdir()]:
        link = target / path.relative_to(ROOT)
        if not link.exists() and path.name != ".git":
            link.symlink_to(path)


def fails(mutation: Mutation, tests: Path) -> bool:
    """Whether a test notices the mutation. Changes sys.path, the folder and the environment of the process.

    Raises:
        ValueError: the file does not have the text `old` exactly once.
        RuntimeError: pytest did not run the tests.
    """
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        copy_checkout(root, tests)
        path = root / "detector" / mutation.file
        text = path.read_text()
        if text.count(mutation.old) != 1:
            raise ValueError(
                f"{mutation.file} has {text.count(mutation.old)} times {mutation.old!r}, expected 1"
            )
        path.write_text(text.replace(mutation.old, mutation.new))
        found = [str(root / "tests" / name) for name in mutation.tests.split() if (tests / name).exists()]
        options = ["-x", "-q", "-n", "0", "-m", "not slow", "-p", "no:cacheprovider", "--rootdir", folder]
        names = mutation.tests.split()
        if OF_ALL_OPS in names:  # there, and in test_func.py, those of the op alone
            words = [
                mutation.file,
                *(name for name in names if name not in (OF_ALL_OPS, "layers/test_func.py")),
            ]
            options += ["-k", " or ".join(Path(word).stem for word in words)]
        sys.path.insert(0, folder)
        os.environ.update(PYTHONPATH=folder, OMP_NUM_THREADS="1")
        os.chdir(folder)
        with open("said.txt", "w") as said, redirect_stdout(said), redirect_stderr(said):
            status = pytest.main([*options, *found])
        os.chdir(ROOT)
        if status not in (0, 1, 2):  # 2: a test file cannot be imported any more
            raise RuntimeError((root / "said.txt").read_text())
        return status != 0


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="How many bugs of a list the tests notice.")
    parser.add_argument("--tests", type=Path, default=ROOT / "tests", help="another version of tests/")
    parser.add_argument("--only", default="", help="mutations of the files whose path has this word")
    parser.add_argument("--jobs", type=int, default=2, help="how many at a time")
    options = parser.parse_args(words)
    chosen = [mutation for mutation in MUTATIONS if options.only in mutation.file]
    # Each in a process of its own, which finds torch imported but nothing of detector.
    with multiprocessing.get_context("fork").Pool(options.jobs, maxtasksperchild=1) as pool:
        caught = []
        fates = pool.imap(partial(fails, tests=options.tests), chosen)
        for mutation, noticed in zip(chosen, fates, strict=True):
            caught.append(noticed)
            said = "caught" if noticed else "NOT CAUGHT"
            print(f"{said}: {mutation.file}: {mutation.old!r} -> {mutation.new!r}", flush=True)
    print(f"caught {sum(caught)} of {len(caught)} mutations")
    return int(not all(caught))


if __name__ == "__main__":
    sys.exit(main())
