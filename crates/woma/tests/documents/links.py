"""Checks that every relative link of every page leads to a file and, with `#`, to a heading of it, and that
every picture is in a page, and small."""

import pages

PICTURE_BYTES_MAX = 120_000


def problems():
    """One line for each link that leads nowhere."""
    checked, led = 0, set()
    for page in pages.pages():
        for line, target in pages.links(page.read_text()):
            if "://" in target or target.startswith("mailto:"):
                continue
            checked += 1
            path, _, anchor = target.partition("#")
            file = (page.parent / path).resolve() if path else page
            led.add(file)
            where = f"{page.relative_to(pages.ROOT)}:{line}: {target}"
            if not file.is_relative_to(pages.ROOT) or not file.exists():
                yield f"{where}: there is no such file"
            elif anchor and file.suffix == ".md" and anchor not in pages.anchors(file.read_text()):
                yield f"{where}: there is no such heading"
    for picture in (pages.ROOT / "docs/pictures").rglob("*"):
        if picture.is_file() and picture not in led:
            yield f"{picture.name} is in no page"
        if picture.stat().st_size > PICTURE_BYTES_MAX:
            yield f"{picture.name} has {picture.stat().st_size} bytes, and {PICTURE_BYTES_MAX} are allowed"
    if checked < 50:
        yield f"only {checked} links were found"


def main():
    found = list(problems())
    sample = "## A `b` and C, d\n## A\n## A\n```\n# no\n[x](y)\n```\n[p](q#r) `[s](t)`\n"
    assert pages.anchors(sample) == {"a-b-and-c-d", "a", "a-1"}, pages.anchors(sample)
    assert list(pages.links(sample)) == [(8, "q#r")], list(pages.links(sample))
    if found:
        raise SystemExit("\n".join(found))


if __name__ == "__main__":
    main()
