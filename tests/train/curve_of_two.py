"""Run in two processes: trains by recipes, and the first process prints figures and curves.

torchrun --nproc-per-node 2 curve_of_two.py '[["RECIPE", ["KEY=VALUE", ...]], ...]'
"""

import json
import sys

from nse.tasks import TASKS, load_recipe
from nse.train.distributed import is_rank_zero
from nse.train.loop import fit
from nse.train.progress import Progress

results = []
for name, settings in json.loads(sys.argv[1]):
    recipe = load_recipe(name, settings)
    task = TASKS[recipe.task]
    with Progress.silent() as progress:
        outcome = fit(task, recipe, task.load_examples(recipe), progress)
    results.append([outcome.figures, outcome.metrics])
if is_rank_zero():
    print(json.dumps(results))
