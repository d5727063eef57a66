# Shell completion and the man page, as the installed command itself prints them.
#   share/bash-completion/completions/trireme   share/zsh/site-functions/_trireme
#   share/fish/vendor_completions.d/trireme.fish   share/man/man1/trireme.1
function(trireme_install_shell_file kind path)
  cmake_path(GET path PARENT_PATH folder)
  set(written ${PROJECT_BINARY_DIR}/share/${path})
  install(CODE "
    file(MAKE_DIRECTORY \"${PROJECT_BINARY_DIR}/share/${folder}\")
    execute_process(COMMAND \"$<TARGET_FILE:trireme>\" completion ${kind} OUTPUT_FILE \"${written}\"
                    COMMAND_ERROR_IS_FATAL ANY)" COMPONENT shell)
  install(FILES ${written} DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/${folder} COMPONENT shell)
endfunction()

if(NOT CMAKE_CROSSCOMPILING)   # else the command does not run here
  trireme_install_shell_file(bash bash-completion/completions/trireme)
  trireme_install_shell_file(zsh zsh/site-functions/_trireme)
  trireme_install_shell_file(fish fish/vendor_completions.d/trireme.fish)
  trireme_install_shell_file(man man/man1/trireme.1)
endif()
