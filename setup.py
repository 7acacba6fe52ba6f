"""Builds detector._C; all else about the package stands in pyproject.toml."""

import glob
import os
import runpy

from setuptools import setup
from setuptools.command.build_py import build_py
from torch.utils import cpp_extension

recipe = runpy.run_path("detector/layers/_extension.py")["recipe"]()
print(f"detector._C: {recipe.note}", flush=True)
if recipe.cuda_home:
    cpp_extension.CUDA_HOME = recipe.cuda_home  # torch's own search stops at the first nvcc on the PATH
extension_type = cpp_extension.CUDAExtension if recipe.cuda_home else cpp_extension.CppExtension
extension = extension_type(
    "detector._C",
    [os.path.relpath(source) for source in recipe.sources],  # setuptools takes no absolute ones
    include_dirs=[recipe.include],
    depends=glob.glob("detector/csrc/**/*.*h", recursive=True),
    extra_compile_args={"cxx": recipe.cxx_flags, "nvcc": recipe.nvcc_flags},
    py_limited_api=True,
)


class BuildExtension(cpp_extension.BuildExtension):
    """Keeps its objects, an editable install's too, so that the next build compiles what changed."""

    def finalize_options(self) -> None:
        super().finalize_options()
        self.build_temp = "build/temp"


class BuildPy(build_py):
    """Puts the recipes into a wheel as detector/_configs; an editable install has configs/ itself."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            self.copy_tree("configs", os.path.join(self.build_lib, "detector", "_configs"))


setup(
    ext_modules=[extension],
    cmdclass={"build_ext": BuildExtension, "build_py": BuildPy},
    options={"bdist_wheel": {"py_limited_api": "cp310"}},
)
