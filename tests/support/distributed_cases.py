"""Starts several processes with the environment of torchrun, but faster, for tests of distributed code."""

import io
import multiprocessing
import os
import signal
import sys
import time
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d
from torch.distributed.launcher.api import LaunchConfig, elastic_launch
from train_cases import batches, criterion, make, weights

import detector
from detector.commands.main import main
from detector.engine.loop import TrainOptions, make_steps
from detector.engine.precision import Precision
from detector.utils.command_line import run_command
from detector.utils.distributed import gather, local_rank, process_group, rank, sync_errors, world_size
from detector.utils.errors import UserError

CPU = torch.device("cpu")
# Slow imports are done once for all processes of all tests. DistributedDataParallel imports torch._dynamo.
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["torch._dynamo", "detector.engine.build", "detector.data.build"])


def run_processes(function, count, *arguments, timeout=40):
    """Call function(*arguments) in `count` processes of one process group.

    Returns:
        A list by rank: the return value, the exception that was raised, or None if the process died or took
        longer than `timeout` seconds.
    """
    store = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    environment = {
        "TORCHELASTIC_RUN_ID": "test",
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "GROUP_WORLD_SIZE": "1",
        "MASTER_ADDR": "localhost",
        "MASTER_PORT": str(store.port),
        "WORLD_SIZE": str(count),
        "LOCAL_WORLD_SIZE": str(count),
    }
    pipes, processes = [], []
    for number in range(count):
        receiver, sender = CONTEXT.Pipe(duplex=False)
        own = {**environment, "RANK": str(number), "LOCAL_RANK": str(number)}
        process = CONTEXT.Process(target=_child, args=(function, arguments, own, sender), daemon=True)
        process.start()
        sender.close()
        pipes.append(receiver)
        processes.append(process)
    results, end = [], time.monotonic() + timeout
    for pipe in pipes:
        try:
            results.append(pipe.recv() if pipe.poll(max(0, end - time.monotonic())) else None)
        except EOFError:
            results.append(None)
    for process in processes:
        process.kill()
        process.join()
    return results


def run_command_in_two_processes(words):
    """`detector WORDS`; returns the statuses by rank, and what both printed: stdout and stderr."""
    results = run_processes(command_and_prints, 2, [str(word) for word in words], timeout=120)
    assert all(isinstance(result, tuple) for result in results), results  # else an error, or none in time
    statuses, out, err = zip(*results, strict=True)
    return list(statuses), "".join(out), "".join(err)


def _child(function, arguments, environment, sender):
    os.environ.update(environment)
    torch.set_num_threads(1)
    try:
        result = function(*arguments)
    except BaseException as error:
        result = error
    sender.send(result)


# ---- Functions for the processes


def train_stand_in(folder, accumulate, criterion=criterion, device="cpu"):
    """Four steps of the training loop; returns the weights."""
    device = torch.device("cuda", local_rank()) if device == "cuda" else CPU
    net, optimizer = make(device)
    with process_group(device, 30):
        make_steps(
            net,
            criterion,
            optimizer,
            batches(rank(), world_size()),
            TrainOptions(
                seed=5,
                max_iter=4,
                lr_factor=lambda iteration: 1 / (1 + iteration),
                accumulate=accumulate,
                log_period=1,
                checkpoint_period=2,
            ),
            folder=folder,
            precision=Precision("float32", device),
        )
    return weights(net).tolist()


def poisoned(outputs, batch):
    """A criterion whose loss is NaN for the batch of one process in one step."""
    losses = criterion(outputs, batch)
    if "image5_0" in batch.image_ids:
        losses["mil"] = losses["mil"] * float("nan")
    return losses


def gather_ranks():
    with process_group(CPU, 30):
        return gather(f"rank {rank()}")


def fail_on_rank_1():
    with process_group(CPU, 30), sync_errors():
        if rank() == 1:
            raise UserError("there is no such file")


def lose_rank_1(way, folder):
    """A command in which rank 1 exits while the others wait; each rank logs to a file."""

    def command():
        with process_group(CPU, 4):
            gather("all ranks")
            if rank() == 1:
                while way == "sleep" and not all(path.stat().st_size for path in others):
                    time.sleep(0.1)
                os._exit(0)
            gather("rank 1 is missing")

    others = [folder / "0.txt", folder / "2.txt"]
    with open(folder / f"{rank()}.txt", "w", buffering=1) as file, redirect_stderr(file):
        return run_command(command)


def train_net(words):
    """Run `detector train` and exit with its status."""
    torch.set_num_threads(1)
    sys.exit(main(["train", *words]))


def torchrun_train_net(words, folder, said):
    """`torchrun --nproc_per_node 2 --max-restarts 1 tools/train_net.py WORDS`, from torchrun's own agent.

    Its processes are forks, as three that import torch take ten seconds. What they print goes to the file
    `said`, and the number of process RANK to the file rankRANK of `folder`.
    """
    options = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=2,
        run_id="test",
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        max_restarts=1,
        monitor_interval=0.1,
        start_method="forkserver",
    )
    with open(said, "w", buffering=1) as file, redirect_stderr(file), redirect_stdout(file):
        elastic_launch(options, _train_net_as_a_rank)(words, folder)


def _train_net_as_a_rank(words, folder):
    torch.set_num_threads(1)
    Path(folder, f"rank{rank()}").write_text(str(os.getpid()))
    assert main(["train", *words]) == 0


def command_until_ctrl_c(words, said):
    """Run `detector WORDS`, with the default action of Ctrl-C; what it prints goes to the file `said`."""
    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job of a shell ignores it
    with open(said, "w", buffering=1) as file, redirect_stderr(file), redirect_stdout(file):
        sys.exit(main(words))


def command_and_prints(words):
    """Run `detector WORDS`; returns its status, stdout and stderr."""
    with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
        try:
            status = main(words)
        except SystemExit as error:
            status = error.code
    return status, out.getvalue(), err.getvalue()


def evaluate_twice(folder):
    """Evaluate a run with two different configs; returns both metrics."""
    return detector.evaluate(folder), detector.evaluate(folder, {"INPUT.TEST_SIZES": [48]})


def meet_twice():
    """Create two process groups in turn; returns whether the second sees keys of the first."""
    with process_group(CPU, 30):
        distributed_c10d._get_default_store().set("address", "first group")
        gather("written")
    with process_group(CPU, 30):
        return gather(distributed_c10d._get_default_store().check(["address"]))
