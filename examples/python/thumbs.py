"""Thumbnails: make small pictures of a folder of large ones, and find those that look alike.

    pip install millrace-sdk Pillow
    python examples/python/thumbs.py [FOLDER]

Each picture is a task. Its worker stores the thumbnail under a key, its colors as a point of a collection, and a
count, with the completion of the task: all of it or nothing, however often the worker is killed. Without a folder it
makes some pictures first.
"""

from __future__ import annotations

import collections
import colorsys
import io
import pathlib
import sys
import tempfile
import threading
from dataclasses import dataclass

from PIL import Image, ImageDraw

import millrace_sdk as mr

HUES = ["red", "orange", "yellow", "lime", "green", "teal", "cyan", "azure", "blue", "violet", "purple", "pink"]


@dataclass
class Picture:
    path: str
    width: int = 96


@mr.job("image.thumb", queue="thumbs", attempts=3, lease=60)
def thumb(t: mr.Task[Picture], p: Picture) -> str:
    with Image.open(p.path) as image:
        small = image.convert("RGB")
        small.thumbnail((p.width, p.width))
    png = io.BytesIO()
    small.save(png, "PNG")
    name = pathlib.Path(p.path).name
    t.fx.kv("thumbs").put(name, png.getvalue())
    t.fx.kv("counts").add("thumbs", 1)
    t.fx.collection("pictures").upsert(name, payload={"text": colors(small), "path": p.path})
    t.log(f"{name}: {small.width}x{small.height}, {png.tell()} bytes")
    return f"{small.width}x{small.height}"


def colors(image: Image.Image) -> str:
    """The colors of a picture as words, each as often as it has tenths of the pixels."""
    count: collections.Counter[str] = collections.Counter()
    raw = image.tobytes()
    for r, g, b in zip(raw[::3], raw[1::3], raw[2::3], strict=True):
        h, s, v = colorsys.rgb_to_hsv(r / 255, g / 255, b / 255)
        count["dark" if v < 0.2 else "light" if s < 0.2 else HUES[int(h * len(HUES) + 0.5) % len(HUES)]] += 1
    return " ".join(" ".join([word] * round(10 * n / count.total())) for word, n in count.most_common()).strip()


def samples(folder: pathlib.Path) -> None:
    """Make pictures of circles on grounds of several colors."""
    for name, ground, circle in [
        ("meadow", "seagreen", "gold"),
        ("forest", "darkgreen", "olive"),
        ("sunset", "orangered", "gold"),
        ("fire", "red", "orange"),
        ("sea", "royalblue", "white"),
    ]:
        image = Image.new("RGB", (640, 480), ground)
        ImageDraw.Draw(image).ellipse((220, 140, 420, 340), fill=circle)
        image.save(folder / f"{name}.png")


def main(folder: pathlib.Path) -> None:
    paths = sorted(p for p in folder.iterdir() if p.suffix.lower() in {".png", ".jpg", ".jpeg", ".webp", ".gif"})
    with mr.Client() as c:
        c.raw.SearchService.SetCollection(collection={"name": "pictures"})  # points are embedded by their text
        w = mr.Worker(c, [thumb], slots=4)
        working = threading.Thread(target=w.run)
        working.start()
        try:
            handles = thumb.add_many(c, [Picture(str(p.resolve())) for p in paths])
            for path, h in zip(paths, handles, strict=True):
                print(f"{path.name}: {h.wait(timeout=60)}")
            for path in paths:
                with Image.open(path) as image:
                    small = image.convert("RGB")
                    small.thumbnail((96, 96))
                found = c.raw.SearchService.Search(collection="pictures", query_text=colors(small), k=2)
                print(f"{path.name} looks like {found.results[1].id}")
            print(f"{c.kv('counts').get('thumbs').text()} thumbnails in all")
        finally:
            w.stop()
            working.join()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(pathlib.Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as made:
            samples(pathlib.Path(made))
            main(pathlib.Path(made))
