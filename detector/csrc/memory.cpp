// The way around an allocation that failed.
#include "memory.h"

// Of libtorch: at::Tensor at::_ops::contiguous::call(const at::Tensor&, c10::MemoryFormat). The result is
// returned through a pointer, as it has a destructor.
struct ReturnedTensor {
  void* tensor;
  ~ReturnedTensor() {}
};
extern ReturnedTensor torch_contiguous(const void* tensor, int8_t memory_format) __asm__(
    "_ZN2at4_ops10contiguous4callERKNS_6TensorEN3c1012MemoryFormatE") __attribute__((weak));

namespace detector {

// The stable ABI reports a failure without the type of the exception, but frameworks catch
// torch.OutOfMemoryError. So the allocation is tried again by torch's own operator, whose exceptions pass
// through: it copies one element, repeated as often as the tensor has elements.
Tensor allocate_again(const Tensor& like, int64_t elements, int32_t dtype) {
  const int64_t one = 1, repeated = 0;
  int32_t device = 0;
  AtenTensorHandle element = nullptr, view = nullptr;
  if (torch_contiguous != nullptr && aoti_torch_get_device_type(like.get(), &device) == AOTI_TORCH_SUCCESS &&
      aoti_torch_empty_strided(1, &one, &one, dtype, device, like.get_device_index(), &element) ==
          AOTI_TORCH_SUCCESS) {
    const Tensor owner(element);
    if (aoti_torch__reinterpret_tensor(element, 1, &elements, &repeated, 0, &view) == AOTI_TORCH_SUCCESS) {
      const Tensor view_owner(view);
      // An AtenTensorHandle is an at::Tensor* made by new, which the Tensor deletes.
      auto* copy = new ReturnedTensor(torch_contiguous(view, 0));
      return Tensor(reinterpret_cast<AtenTensorHandle>(copy));
    }
  }
  fail("detector: a tensor of ", elements, " elements could not be allocated");
}

}  // namespace detector
