# Start here. Every target only calls the parts: tools/ sets up and builds, build/bin/trireme
# trains, ctest tests.
# Values to set:  make train CONFIG=... RANKS=... ARGS="--set train.steps=20"
CONFIG ?= configs/gpt-nano.toml
RANKS  ?= 2
TORCH  ?= cpu
ARGS   ?=
MPICC  ?= mpicc

.DEFAULT_GOAL := help
.PHONY: demo-chaos help train build mpi test bench soak sanitize format install clean

help:
	@echo 'make train     install what is missing, build, and train a small GPT with two ranks'
	@echo '               (CONFIG=configs/gpt-nano.toml RANKS=2 ARGS="--set train.steps=20")'
	@echo 'make test      build everything and run the test suite'
	@echo 'make build     build build/bin/trireme'
	@echo 'make bench     measure against PyTorch DDP, Gloo, Open MPI, MPICH (ONECCL=1: and oneCCL)'
	@echo 'make demo-chaos  train while ranks are killed; compare the weights with an undisturbed run'
	@echo 'make soak      the long tests, sanitizers, a build without precompiled headers, fuzzers'
	@echo 'make sanitize  ASan+UBSan on the floors without LibTorch, sync, pipeline; TSan on some'
	@echo 'make mpi       build libtrireme_mpi.so alone, for your MPI (MPICC=/path/to/mpicc)'
	@echo 'make install   install library, headers and command (PREFIX=/usr/local)'
	@echo 'make format    format the sources in place'
	@echo 'make clean     remove what was built (runs/, what tools/gpu_pass found and the installed LibTorch stay)'
	@echo 'LibTorch: TORCH_DIR=/path/to/torch uses yours; TORCH=cuda allows the large CUDA wheel.'

train: build
	@build/bin/trireme train "$(CONFIG)" --ranks $(RANKS) $(ARGS)

build:
	@python3 tools/build.py --torch $(TORCH) trireme

# Only this library uses MPI: it alone is compiled for another one.
mpi:
	@mkdir -p build/lib
	$(MPICC) -std=gnu11 -O2 -Wall -Wextra -fPIC -shared -fvisibility=hidden \
	  -o build/lib/libtrireme_mpi.so trireme/net/mpi/trireme_mpi.c

test:
	@tools/test $(TORCH)

demo-chaos: build
	@python3 tools/demo_chaos.py build/bin/trireme $(ARGS)

bench:
	@tools/bench $(TORCH)

soak: sanitize
	@tools/soak $(TORCH)

sanitize:
	@tools/sanitize

PREFIX ?= /usr/local
install:
	@python3 tools/build.py --torch $(TORCH) product
	@cmake --install build --prefix "$(PREFIX)"

format:
	@tools/check_format --fix

clean:
	@rm -rf build $(filter-out build-gpu-pass,$(wildcard build-*))
