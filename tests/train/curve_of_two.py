"""Run by torchrun in two processes: trains by a recipe, and the first process prints the curve.

torchrun --nproc-per-node 2 curve_of_two.py KEY=VALUE...
"""

import json
import sys

from nse.tasks import TASKS, load_recipe
from nse.train.distributed import leads
from nse.train.loop import fit
from nse.train.progress import Progress

recipe, task = load_recipe("logic/nse", sys.argv[1:]), TASKS["logic"]
with Progress.silent() as progress:
    outcome = fit(task, recipe, task.examples(recipe), progress)
if leads():
    print(json.dumps([outcome.accuracy, outcome.metrics]))
