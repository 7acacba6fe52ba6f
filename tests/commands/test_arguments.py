"""The choices of the commands are those of the modules that act on them."""

from detector.commands import arguments, predict, review
from detector.data.formats import FORMATS
from detector.data.proposals.foreign import READERS
from detector.data.sources.scene_split import SPLIT_BY
from detector.inference.export import SUFFIXES
from detector.labeling.suggest import RULES
from detector.labeling.training_formats import TRAINING_FORMATS
from detector.utils.command_line import command_parser


def test_choices_are_those_of_the_modules():
    assert arguments.FORMATS == FORMATS
    assert arguments.TRAINING_FORMATS == TRAINING_FORMATS
    assert arguments.PREDICT_FORMATS == predict.FORMATS
    assert tuple(SUFFIXES) == arguments.EXPORT_FORMATS
    assert tuple(READERS) == arguments.PROPOSAL_FORMATS
    assert arguments.RULES == RULES
    told = {}
    for name in ("init", "review"):
        parser = command_parser(name, None)
        getattr(arguments, name)(parser)
        told |= {action.dest: action for action in parser._actions}
    assert told["split_by"].choices == SPLIT_BY
    assert str(review.PORT) in told["port"].help
