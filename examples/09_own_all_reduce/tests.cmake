# An all-reduce of one's own takes no more than 40 lines, program and wrong variant included.
add_test(NAME examples/09_own_all_reduce_lines
         COMMAND awk "END { exit NR > 40 }" ${CMAKE_CURRENT_LIST_DIR}/main.cc)
set_tests_properties(examples/09_own_all_reduce_lines PROPERTIES LABELS examples)
