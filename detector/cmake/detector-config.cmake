# find_package(detector) after find_package(Torch): the target detector::layers, with which a C++ program gets the ops
# torch.ops.detector.* (docs/layers.md has an example).
if(NOT TARGET torch)
  set(detector_FOUND FALSE)
  set(detector_NOT_FOUND_MESSAGE "detector's ops are compiled against torch: call find_package(Torch REQUIRED) first")
  return()
endif()

file(GLOB _detector_library "${CMAKE_CURRENT_LIST_DIR}/../_C.*so")
list(LENGTH _detector_library _detector_count)
if(NOT _detector_count EQUAL 1)
  set(detector_FOUND FALSE)
  set(detector_NOT_FOUND_MESSAGE "the compiled extension detector/_C.abi3.so is not beside ${CMAKE_CURRENT_LIST_DIR}, where ${_detector_count} files have such a name: install the package")
  return()
endif()

if(NOT TARGET detector::layers)
  add_library(detector::layers SHARED IMPORTED)
  set_target_properties(detector::layers PROPERTIES
    IMPORTED_LOCATION "${_detector_library}"
    IMPORTED_NO_SONAME FALSE
    # Loading it registers the ops; a program uses none of its symbols, for which linkers leave a library out.
    INTERFACE_LINK_OPTIONS "LINKER:--no-as-needed"
    INTERFACE_LINK_LIBRARIES torch)
endif()
