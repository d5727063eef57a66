# Python loads what the README's commands saved: the weights and the last checkpoint's model.
if(TRIREME_COMPAT_PYTHON)
  set_tests_properties(examples/03_checkpoint PROPERTIES FIXTURES_SETUP run_03)
  add_test(NAME compat/python_loads_03_checkpoint
           COMMAND ${TRIREME_COMPAT_PYTHON} ${CMAKE_CURRENT_LIST_DIR}/load.py
                   ${PROJECT_BINARY_DIR}/run-03/killed)
  set_tests_properties(compat/python_loads_03_checkpoint PROPERTIES
                       FIXTURES_REQUIRED run_03 LABELS compat)
endif()

add_test(NAME chaos/disk_full_while_saving
         COMMAND ${CMAKE_CURRENT_LIST_DIR}/disk_full.sh
                 ${PROJECT_BINARY_DIR}/examples/03_checkpoint/checkpoint ${PROJECT_BINARY_DIR}/run-03-full)
set_tests_properties(chaos/disk_full_while_saving PROPERTIES LABELS chaos)
