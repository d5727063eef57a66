# Install rules: see issue "find_package(Trireme)".
