# Data for tests that is not in the tree, such as what others published. It lies in the folder that the variable
# TRIREME_DATA names, of the environment or of CMake; else in ../shared/data, beside the checkout.
set(TRIREME_DATA "" CACHE PATH "Folder of the data for tests; empty: ../shared/data beside the checkout")

# trireme_test_data(variable file): the path of `file` in that folder; empty if it is not there.
function(trireme_test_data variable file)
  set(folder "$ENV{TRIREME_DATA}")
  if(folder STREQUAL "")
    set(folder "${TRIREME_DATA}")
  endif()
  if(folder STREQUAL "")
    set(folder ../shared/data)
  endif()
  cmake_path(ABSOLUTE_PATH folder BASE_DIRECTORY ${PROJECT_SOURCE_DIR} NORMALIZE)
  set(path "")
  if(EXISTS ${folder}/${file})
    set(path ${folder}/${file})
  endif()
  set(${variable} "${path}" PARENT_SCOPE)
endfunction()
