# Each piece's output must be PyTorch's: the recorded one and, if PyTorch is installed, a new one.
set(compat ${PROJECT_SOURCE_DIR}/tests/compat)
foreach(piece autocast clip_grad_norm ema grad_scaler learning_rate offload recompute tensorboard weights)
  set(program ${PROJECT_BINARY_DIR}/examples/pieces/piece_${piece})
  add_test(NAME examples/pieces_${piece}
           COMMAND ${Python3_EXECUTABLE} ${compat}/check_piece.py ${compat}/golden/pieces.json
                   ${piece} ${program})
  set_tests_properties(examples/pieces_${piece} PROPERTIES LABELS examples)
endforeach()
if(TRIREME_COMPAT_PYTHON)
  add_test(NAME compat/python_pieces
           COMMAND ${TRIREME_COMPAT_PYTHON} ${compat}/make_pieces_golden.py --compare)
  set_tests_properties(compat/python_pieces PROPERTIES LABELS compat)
endif()
