# A user's own model with all commands takes no more than 40 lines.
add_test(NAME examples/08_own_model_lines
         COMMAND awk "END { exit NR > 40 }" ${CMAKE_CURRENT_LIST_DIR}/main.cc)
set_tests_properties(examples/08_own_model_lines PROPERTIES LABELS examples)
