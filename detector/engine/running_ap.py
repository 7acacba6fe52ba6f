"""AP on some test images while a detector learns, in a small share of the time that its training takes."""

import logging
import math
import time
from collections.abc import Callable, Iterable, Sequence

import numpy as np
from torch import nn

from detector.data.datasets.annotated import AnnotatedImages
from detector.evaluation.voc import voc_ap
from detector.structures import Detections
from detector.utils.errors import UserError

logger = logging.getLogger(__name__)

_POINTS = 10  # of the curve, where there is time for so many
_FEWEST = 10  # images of a point, if there are so many
_TIMED = 5  # steps at least, and 2 % of all, before it is known what a step takes
_MARGIN = 0.8  # of the time that may be used; a detector that has learned more finds more, which takes longer


class RunningAP:
    """AP50 every few steps: how many, and of how many images, is chosen by what steps and images take here.

    It draws no random number that training uses and changes no weight: with and without it the weights are
    equal bitwise. Which points the curve has depends on the speed of the machine.

    Args:
        detect: a model and indices of `test_set` to the detections in these images.
        test_set: of its images those with boxes count.
        share: of the training time, which is not exceeded.
    """

    def __init__(
        self,
        detect: Callable[[nn.Module, Sequence[int]], Iterable[Detections]],
        test_set: AnnotatedImages,
        share: float,
    ) -> None:
        self._detect, self._test_set, self._share = detect, test_set, share
        self._boxed = [i for i in range(len(test_set)) if test_set.annotation(i) is not None]
        self._images: list[int] = []  # those of each point
        self._start, self._began = 0, math.nan  # the first step, and when it had been made
        self._period = 0  # steps between two points; 0: there are none, or it is not known yet
        self._spent = self._expected = 0.0  # seconds until now, and of the next point

    def measure(self, model: nn.Module, iteration: int, max_iter: int) -> float | None:
        """AP50 in percent after a step; None: it is not measured now. To be called after each step."""
        if not self._boxed:
            return None
        now = time.perf_counter()
        if math.isnan(self._began):
            self._start, self._began = iteration, now
        elif not self._images:
            steps = iteration - self._start
            if steps >= max(_TIMED, max_iter // 50):
                left = max_iter - iteration
                self._choose(model, left, left * (now - self._began) / steps)
        elif self._period and (max_iter - iteration) % self._period == 0:
            affordable = self._spent + self._expected <= self._share * (now - self._began)
            return self._measure(model, self._images) if affordable else None
        return None

    def _choose(self, model: nn.Module, steps: int, seconds: float) -> None:
        """Choose images and period for the `steps` that are left, which will take `seconds`."""
        boxed = self._boxed
        self._measure(model, boxed[:1])  # the first image may wait for memory or kernels
        timed = boxed[:3]
        self._measure(model, timed)
        if not self._expected:  # the scores are not finite
            return
        of_image = self._expected / len(timed)
        available = _MARGIN * self._share * seconds - self._spent
        count = min(len(boxed), int(available / (_POINTS * of_image)))
        points = _POINTS
        if count < min(_FEWEST, len(boxed)):
            count = min(_FEWEST, len(boxed))
            points = int(available / (count * of_image))
        self._images = [boxed[k * len(boxed) // count] for k in range(count)]  # evenly spread
        self._expected = count * of_image
        if points < 1:
            logger.info(
                "no AP50 while training: %d test images take %.1f s, which is over %.0f %% of the time",
                *(count, self._expected, 100 * self._share),
            )
            return
        self._period = -(-steps // points)
        logger.info(
            "every %d steps, AP50 of %d of the %d test images with boxes, evenly spread: %s",
            *(self._period, count, len(boxed)),
            ", ".join(self._test_set.image_ids[i] for i in self._images),
        )

    def _measure(self, model: nn.Module, images: Sequence[int]) -> float | None:
        """AP50 of some images in percent; None: none of them shows an object, or scores are not finite."""
        began, training = time.perf_counter(), model.training
        try:
            found = [detections.to("cpu") for detections in self._detect(model.eval(), images)]
        except UserError:
            return None  # the next step fails on the same weights, and says where
        finally:
            model.train(training)
        truth = [each for i in images if (each := self._test_set.annotation(i)) is not None]
        ap = voc_ap(found, truth, len(self._test_set.class_names))
        self._expected = time.perf_counter() - began
        self._spent += self._expected
        return None if np.isnan(ap).all() else 100 * float(np.nanmean(ap))
