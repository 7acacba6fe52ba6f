// Expands the list of vision.h into the op library and into the Python module detector._C.
//
// Only libtorch's stable ABI and Python's limited API are used, so that one build serves every later torch
// and Python.
#ifndef Py_LIMITED_API
#define Py_LIMITED_API 0x030a0000  // Python 3.10
#endif
#include "vision.h"

#include <Python.h>
#include <torch/csrc/stable/library.h>

// A C++ program without Python loads the ops with dlopen(): what only PyInit calls may be missing there.
#pragma weak PyImport_ImportModule
#pragma weak PyModule_Create2
#pragma weak PyObject_GetAttrString
#pragma weak PyObject_SetAttrString
#pragma weak _Py_Dealloc

STABLE_TORCH_LIBRARY(detector, m) {
#define DEFINE_OP(name, schema) m.def(#name schema);
  DETECTOR_OPS(DEFINE_OP)
#undef DEFINE_OP
}

namespace {

// module.name = torch.ops.detector.name: the same Python object, hence the same op.
bool add_op(PyObject* module, PyObject* ops, const char* name) {
  PyObject* op = PyObject_GetAttrString(ops, name);
  const bool added = op != nullptr && PyObject_SetAttrString(module, name, op) == 0;
  Py_XDECREF(op);
  return added;
}

bool add_ops(PyObject* module) {
  PyObject* torch = PyImport_ImportModule("torch");
  PyObject* all_ops = torch ? PyObject_GetAttrString(torch, "ops") : nullptr;
  PyObject* ops = all_ops ? PyObject_GetAttrString(all_ops, "detector") : nullptr;
  bool added = ops != nullptr;
#define ADD_OP(name, schema) added = added && add_op(module, ops, #name);
  DETECTOR_OPS(ADD_OP)
#undef ADD_OP
  Py_XDECREF(ops);
  Py_XDECREF(all_ops);
  Py_XDECREF(torch);
  return added;
}

PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_C", "The compiled ops of detector; see detector.layers.",
                          -1, nullptr};

}  // namespace

// torch's build defines TORCH_EXTENSION_NAME: _C, or detector_C when compiled at import (DETECTOR_JIT=1).
#define INIT_NAME(name) PyInit_##name
#define INIT_OF(name) INIT_NAME(name)

PyMODINIT_FUNC INIT_OF(TORCH_EXTENSION_NAME)() {
  PyObject* module = PyModule_Create(&definition);
  if (module != nullptr && !add_ops(module)) {
    Py_CLEAR(module);
  }
  return module;
}
