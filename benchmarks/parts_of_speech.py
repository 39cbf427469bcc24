"""Parts of speech by a word list: what a word most often is in captions of photographs, no tagger asked.

Function words are listed in full. Content words are told apart by lists of common ones and by their endings,
and what is left is called a noun, so that content and function words are told apart more surely than nouns
and verbs.
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
        seed speed feed ring king wing""",  # whose endings would make verbs of them
}
"""Of a word that is in several lists the first one counts."""

_PART = {
    word: part for part, words in reversed([*FUNCTION.items(), *CONTENT.items()]) for word in words.split()
}


def part_of(word: str) -> str:
    """The part of speech of a word: one of `FUNCTION`, of `CONTENT`, "punctuation", or "start"."""
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


def group_of(part: str) -> str:
    """Content, function, or neither."""
    return "content" if part in CONTENT else "function" if part in FUNCTION else part
