"""One map of Freedoom 2 as a stage: stand somewhere, put things there, look."""

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from detector.utils.errors import MissingPackage

HEIGHT, WIDTH = 300, 400
FOCAL = WIDTH / 2  # pixels: the view is 90 degrees wide
DEPTH_UNIT = 7.5  # map units a step of the depth buffer, measured; a little less than the least seen
SUMMON_AHEAD = 57.0  # map units from the player to what `summon` puts before him

# What a map holds of itself is cleared of all monsters, and of what looks like a thing of the data set but
# bears another name. The rest (columns, trees, torches, ammunition, blood) is clutter.
# fmt: off
MONSTERS = (
    "Arachnotron", "Archvile", "BaronOfHell", "Cacodemon", "ChaingunGuy", "CommanderKeen", "Cyberdemon",
    "Demon", "DoomImp", "Fatso", "HellKnight", "LostSoul", "PainElemental", "Revenant", "ShotgunGuy",
    "Spectre", "SpiderMastermind", "WolfensteinSS", "Zombieman",
)
LOOKALIKES = (
    "DeadCacodemon", "DeadDemon", "DeadDoomImp", "DeadLostSoul", "DeadShotgunGuy", "DeadZombieMan",
    "BlueArmor", "BurningBarrel", "Stimpack", "TechLamp2",
)
# fmt: on


@dataclass(frozen=True)
class Thing:
    """A thing as the player sees it."""

    kind: str  # the engine's class
    box: tuple[int, int, int, int]  # half-open x1, y1, x2, y2 around its visible pixels
    pixels: int  # how many they are
    brightness: float  # their mean, of 255


class Game:
    """One map, played by nobody: monsters neither see nor hear the player, who cannot be hurt.

    The map and the seed decide what happens; nothing outlives the object.

    Args:
        map_name: "MAP01" to "MAP32".
        seed: of the engine's own random numbers.
        folder: takes the file of settings that the engine writes. (It makes a folder _vizdoom in the working
            directory, too.)
        kinds: the engine's classes that the map is to be cleared of, beside its monsters.
    """

    def __init__(self, map_name: str, seed: int, folder: Path, kinds: tuple[str, ...]):
        try:  # an optional dependency
            import vizdoom
        except ImportError:
            raise MissingPackage("vizdoom is not installed: pip install vizdoom") from None
        game = self.engine = vizdoom.DoomGame()
        game.set_doom_config_path(str(folder / f"{map_name}.ini"))
        game.set_doom_game_path(str(Path(vizdoom.__file__).parent / "freedoom2.wad"))
        game.add_game_args("+cl_showsecretmessage 0")
        game.set_doom_map(map_name)
        game.set_seed(seed)
        game.set_screen_resolution(vizdoom.ScreenResolution.RES_400X300)
        game.set_screen_format(vizdoom.ScreenFormat.RGB24)
        game.set_labels_buffer_enabled(True)
        game.set_depth_buffer_enabled(True)
        game.set_objects_info_enabled(True)
        for part in ("hud", "weapon", "crosshair", "messages", "decals", "particles"):
            getattr(game, f"set_render_{part}")(False)
        game.set_window_visible(False)
        game.set_sound_enabled(False)
        game.set_available_buttons([vizdoom.Button.TURN_LEFT_RIGHT_DELTA])
        variables = vizdoom.GameVariable
        game.set_available_game_variables([variables.POSITION_X, variables.POSITION_Y, variables.ANGLE])
        game.set_episode_timeout(0)
        game.init()
        self.wait(10)  # the player cannot turn before
        self.spots = self._free_spots()
        self.command("god", "notarget", *(f"remove {kind}" for kind in (*MONSTERS, *LOOKALIKES, *kinds)))

    def _free_spots(self) -> list[tuple[float, float]]:
        """Where the map's monsters stand, in a fixed order: places that are roomy enough for a player."""
        things = self.engine.get_state().objects
        return sorted({(thing.position_x, thing.position_y) for thing in things if thing.name in MONSTERS})

    def wait(self, tics: int) -> None:
        """Let time pass, 35 tics a second, and draw the last."""
        self.engine.make_action([0], tics)

    def command(self, *commands: str) -> None:
        """Give commands of the console and let a tic pass; nothing is drawn, which is what takes long."""
        for command in commands:
            self.engine.send_game_command(command)
        self.engine.set_action([0])
        self.engine.advance_action(1, False)

    def stand_at(self, x: float, y: float) -> None:
        """Move the player, who still looks the same way. Where something stands in the way, he stays."""
        self.command(f"warp {x:.1f} {y:.1f}")

    def turn(self, degrees: float) -> None:
        """To the right."""
        self.engine.make_action([degrees], 1)
        self.wait(1)

    def free_depths(self) -> np.ndarray:
        """Map units (W,) from the picture's plane to the first wall, for each column at eye level."""
        return self.engine.get_state().depth_buffer[HEIGHT // 2].astype(np.float64) * DEPTH_UNIT

    def put(self, kind: str, depth: float, column: float, facing: float) -> None:
        """Put a thing into view; where the player would not fit, it lands before him.

        Args:
            depth: map units from the plane of the player's eyes.
            column: of the picture, where its middle shall be.
            facing: degrees from the player's direction of view; 180: it looks at the player.
        """
        x, y, angle = map(float, self.engine.get_state().game_variables)
        ahead, right = depth - SUMMON_AHEAD, depth * (column - WIDTH / 2) / FOCAL
        cosine, sine = math.cos(math.radians(angle)), math.sin(math.radians(angle))
        self.stand_at(x + ahead * cosine + right * sine, y + ahead * sine - right * cosine)
        self.command(f"summon {kind} {facing:.0f}")
        self.stand_at(x, y)

    def look(self) -> tuple[np.ndarray, list[Thing]]:
        """The picture (H, W, 3) uint8 RGB and all things in it, in the engine's order."""
        state = self.engine.get_state()
        things = []
        for label in state.labels:
            pixels = state.labels_buffer == label.value  # (H, W)
            box = label.x, label.y, label.x + label.width, label.y + label.height
            count = int(np.count_nonzero(pixels))
            brightness = float(state.screen_buffer[pixels].mean()) if count else 0.0
            things.append(Thing(label.object_name, box, count, brightness))
        return state.screen_buffer.copy(), things

    def close(self) -> None:
        self.engine.close()
