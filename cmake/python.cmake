# trireme_python_with(variable "modules" candidates...): the first of these Pythons that has all the modules, or empty.
# It is the interpreter itself: a shim before it, as pyenv's, takes ten times as long to start. The modules are looked
# for, not imported, which takes seconds for some.
function(trireme_python_with variable modules)
  foreach(candidate ${ARGN})
    execute_process(COMMAND ${candidate} -c "import sys; from importlib.util import find_spec
print(sys.executable, end='')
sys.exit(not all(map(find_spec, '${modules}'.split())))" RESULT_VARIABLE failed OUTPUT_VARIABLE found ERROR_QUIET)
    if(NOT failed)
      set(${variable} ${found} PARENT_SCOPE)
      return()
    endif()
  endforeach()
  set(${variable} "" PARENT_SCOPE)
endfunction()

trireme_python_with(Python3_EXECUTABLE "" python3)   # for tests
if(NOT Python3_EXECUTABLE)
  message(FATAL_ERROR "No python3 on the PATH: the tests need one.")
endif()
