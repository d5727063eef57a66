# main.cc may differ from before.cc by five lines.
add_test(NAME examples/02_data_parallel/changed_lines
         COMMAND ${CMAKE_CURRENT_LIST_DIR}/count_changed_lines.sh ${CMAKE_CURRENT_LIST_DIR} 5)
set_tests_properties(examples/02_data_parallel/changed_lines PROPERTIES LABELS examples)
