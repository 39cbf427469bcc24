"""Parts of speech by word lists: the most frequent one of a word in captions of photographs.

Function words are listed completely. Content words are classified by lists of common ones and by their
endings; all others count as nouns. Content and function words are therefore distinguished more reliably than
nouns and verbs.
"""

FUNCTION = {
    "determiner": """
        a an the this that these those some any each every no another all both either neither such several
        many few most much more other others his her its their our your my""",
    "preposition": """
        in on of with at to for by from near into through over down up out off around behind about under
        across along against towards toward during after before past onto beside between above below beneath
        inside outside among next without within upon like as than via per""",
    "pronoun": """
        he she it they him them i we you us me who whom which what whose himself herself itself themselves
        someone something somebody anyone anything nobody nothing everyone everything there""",
    "auxiliary": """
        is are was were be being been am has have had having does do did doing can could will would may might
        must shall should s re ll isn aren doesn don didn wasn weren t""",
    "conjunction": """
        and or but while because if so when where since though although until how why whether nor""",
    "particle": "not just very too also only then away back together",
}
CONTENT = {
    "number": """
        one two three four five six seven eight nine ten eleven twelve twenty hundred first second third""",
    "adjective": """
        red white black blue green yellow brown orange pink gray grey purple tan dark light bright colorful
        colored striped plaid young old older elderly little small large big tall short long high new full
        empty open hot cold wet dry asian american african blond blonde haired female male happy sad busy
        ready asleep alone wooden metal plastic snowy grassy sunny outdoor indoor local different same good
        hard human homeless naked shirtless military dirty clean beautiful pretty nice bald fancy crowded
        heavy huge tiny multicolored bare public professional chinese japanese indian european left right top
        middle""",
    "adverb": "outdoors indoors nearby",
    "verb": """
        play plays sit sits stand stands walk walks run runs ride rides look looks watch watches hold holds
        wear wears work works take takes get gets go goes eat eats jump jumps swim swims talk talks drink
        drinks dance dances perform performs make makes show shows wait waits climb climbs throw throws catch
        catches kick kicks hit hits fight fights pose poses prepare prepares try tries sleep sleeps read reads
        sing sings smile smiles laugh laughs drive drives cook cooks push pushes pull pulls carry carries give
        gives see sees enjoy enjoys break breaks rest rests fall falls help helps lay lays lie lies lean leans
        put puts cross crosses swing swings slide slides hike hikes surf surfs skate skates sell sells
        buy buys paint paints cleans cut cuts wave waves point points speak speaks gather gathers taken
        made got""",
    "noun": """
        building clothing wedding ceiling railing evening morning string spring painting bed shed sled weed
        seed speed feed ring king wing""",  # otherwise verbs by their endings
}
"""The first list of a word counts."""

_PART = {
    word: part for part, words in reversed([*FUNCTION.items(), *CONTENT.items()]) for word in words.split()
}


def find_part(word: str) -> str:
    """Return the part of speech of a word: a key of `FUNCTION` or `CONTENT`, "punctuation" or "start"."""
    if word.startswith("<S"):
        return "start"
    lower = word.lower()
    if lower in _PART:
        return _PART[lower]
    if not any(letter.isalnum() for letter in word):
        return "punctuation"
    if lower.isdigit():
        return "number"
    if lower.endswith("ly") and len(lower) > 4:
        return "adverb"
    return "verb" if lower.endswith(("ing", "ed")) and len(lower) > 4 else "noun"


def find_group(part: str) -> str:
    """Return "content" or "function" for a part of speech, or the part itself."""
    return "content" if part in CONTENT else "function" if part in FUNCTION else part
