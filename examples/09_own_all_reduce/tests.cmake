# A user's own all-reduce takes no more than 40 lines, including the program and a wrong variant.
add_test(NAME examples/09_own_all_reduce_lines
         COMMAND awk "END { exit NR > 40 }" ${CMAKE_CURRENT_LIST_DIR}/main.cc)
set_tests_properties(examples/09_own_all_reduce_lines PROPERTIES LABELS examples)
