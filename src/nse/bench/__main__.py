"""One first call, in the process that `cpu.first_call` starts: BACKEND SHAPE THREADS, answered in JSON."""

import json
import sys

import torch

from nse.bench.cpu import Shape, measure_first_call

if __name__ == "__main__":
    torch.set_num_threads(int(sys.argv[3]))
    print(json.dumps(measure_first_call(sys.argv[1], Shape(*json.loads(sys.argv[2])))))
