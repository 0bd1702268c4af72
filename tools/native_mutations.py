"""Makes small changes to a C++ module of the engine, as tools/mutations.py does to a Python module, from its text alone: conditions,
comparisons, signs, errors that are passed on, statements that are left out, and results.

It relies on clang-format, by which a binary operator has a space on both sides and a template's brackets have none. A change that does not
compile is no mutant; the compiler finds that out.
"""

import re
from collections import Counter
from dataclasses import dataclass

TOKEN = re.compile(
    r"//[^\n]*|/\*.*?\*/|^[ \t]*#(?:[^\n]*\\\n)*[^\n]*"  # comments and directives, which are left out
    r'|R"\((?s:.*?)\)"|"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])*\'|[A-Za-z_]\w*|\d[\w.\']*'
    r"|->|::|<<=|>>=|[-+*/%&|^=!<>]=|&&|\|\||\+\+|--|[^\s\w]",
    re.M | re.S,
)
BINARY = {"==": "!=", "!=": "==", "<": "<=", "<=": "<", ">": ">=", ">=": ">", "&&": "||", "||": "&&"}
BINARY |= {"+": "-", "-": "+", "*": "/", "+=": "-=", "-=": "+="}
WORDS = {"true": "false", "false": "true", "min": "max", "max": "min"}
TYPES = ("namespace", "class", "struct", "union", "enum", "extern")
HEADS = ("if", "while", "for", "switch")
# A call, an assignment to what is there already, or a jump; a declaration has a space between its type and its name.
REMOVABLE = re.compile(r"(\(void\))?(\+\+|--)?[\w:.*>()\[\]-]+(\(.*|( [-+|&]?= .*)|\+\+|--)?", re.S)
CHECKED = "DF_RETURN_IF_ERROR"
LONGEST = 160  # characters of a statement in a name


@dataclass
class Block:
    """An open bracket. ``kind``: "code", "types" (of a namespace or a class), "braces" or the bracket itself; ``begin``: the number of the
    first token of the statement under way in it; ``name``: of the function or type; ``returns``: the last word of the type of a function's
    result, None if it is not written."""

    kind: str
    at: int
    begin: int
    name: str = ""
    returns: str | None = None


def short(text):
    text = " ".join(text.split())
    return text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."


class Reader:
    """Goes through a source once, and notes each change as (where, begin, end, text, whole): in the function ``where``, ``text`` takes the
    place of these characters; ``whole`` says that they are a statement."""

    def __init__(self, source):
        self.source = source
        found = [match for match in TOKEN.finditer(source) if not re.match(r"//|/\*|\s*#", match[0])]
        self.tokens = [match[0] for match in found]
        self.spans = [match.span() for match in found]
        self.blocks = [Block("types", 0, 0)]
        self.changes = []
        for at, token in enumerate(self.tokens):
            self._read(at, token)

    def _text(self, begin, end):
        """The source of the tokens from ``begin`` to the one before ``end``."""
        return self.source[self.spans[begin][0] : self.spans[end - 1][1]] if begin < end else ""

    def _note(self, begin, end, text, whole=False):
        where = ".".join(one.name for one in self.blocks if one.name)
        self.changes.append((where, self.spans[begin][0], self.spans[end - 1][1], text, whole))

    def _token(self, at):
        return self.tokens[at] if 0 <= at < len(self.tokens) else ""

    def _read(self, at, token):
        top = self.blocks[-1]
        if any(one.kind == "code" for one in self.blocks):
            self._swap(at, token)
        if token in ("(", "["):
            self.blocks.append(Block(token, at, at + 1))
        elif token == "{":
            self.blocks.append(self._opened(at))
        elif token in (")", "]", "}"):
            self._closed(at, self.blocks.pop())
        elif token == ";" and top.kind in ("code", "types"):
            if top.kind == "code":
                self._statement(top.begin, at)
            top.begin = at + 1
        elif token == "else" or (token == ":" and self._token(top.begin) in ("case", "default", "public", "private")):
            top.begin = at + 1

    def _swap(self, at, token):
        begin, end = self.spans[at]
        spaced = self.source[begin - 1].isspace() and self.source[end : end + 1].isspace()
        of_texts = any(self._token(one).startswith('"') for one in (at - 1, at + 1))  # there is no minus
        if token in BINARY and spaced and not of_texts:
            self._note(at, at + 1, BINARY[token])
        elif token == "!":
            self._note(at, at + 1, "")
        elif token in ("true", "false") or (token in WORDS and self._token(at - 2) == "std"):
            self._note(at, at + 1, WORDS[token])
        elif token == "?" and self._token(at - 1).isidentifier() and self._token(at - 2) in ("=", "(", ",", "return"):
            self._note(at - 1, at, "!" + self._token(at - 1))

    def _opened(self, at):
        """The block that begins with this brace."""
        top, before = self.blocks[-1], self._token(at - 1)
        head = self.tokens[top.begin : at]
        if head and head[0] in TYPES:
            names = [one for one in head[1:] if one.isidentifier() and one not in (*TYPES, "final", "anonymous")]
            return Block("types", at, at + 1, names[0] if names and head[0] != "namespace" else "")
        returned = self._token(at - 2) == "->"
        starts = before in (")", "]", "else", "do", "try", "const", "override", "noexcept", "mutable", "{", "}", ";")
        if not (starts or returned or top.begin == at):
            return Block("braces", at, at + 1)
        if not any(one.kind == "code" for one in self.blocks):
            return Block("code", at, at + 1, *self._function(head))
        if returned:
            return Block("code", at, at + 1, returns=before)
        around = next(one for one in reversed(self.blocks) if one.kind == "code")
        is_lambda = before in ("]", "mutable") or (before == ")" and self._opener(at - 1, "]"))
        return Block("code", at, at + 1, returns=None if is_lambda else around.returns)

    def _opener(self, at, before):
        """Whether this ``before`` stands before the bracket that the token closes."""
        depth = 0
        for number in range(at, -1, -1):
            depth += (self.tokens[number] == ")") - (self.tokens[number] == "(")
            if depth == 0:
                return self._token(number - 1) == before
        return False

    def _function(self, head):
        """The name, and the type of the result, of the function that begins with these tokens."""
        if "(" not in head:
            return "", None
        end = head.index("(")
        begin = end - 1
        while begin >= 2 and head[begin - 1] == "::":
            begin -= 2
        types = head[: max(begin, 0)]
        return "".join(head[max(begin, 0) : end]), types[-1] if types else None

    def _closed(self, at, block):
        top, after = self.blocks[-1], self._token(at + 1)
        if block.kind in ("code", "types"):
            if after not in (";", ",", ")", ".", "("):
                top.begin = at + 1
        elif block.kind == "(" and top.kind == "code" and self._token(block.at - 1) in (*HEADS, "constexpr"):
            if self._token(block.at - 1) in ("if", "while"):
                self._condition(block.at + 1, at)
            top.begin = at + 1

    def _condition(self, begin, end):
        """Negates a condition in which nothing else is changed."""
        inside = self.tokens[begin:end]
        begin += inside.index(";") + 1 if ";" in inside else 0
        plain = not any(one in BINARY or one in ("!", "=") for one in self.tokens[begin:end])
        if begin < end and plain:
            self._note(begin, end, f"!({self._text(begin, end)})")

    def _may_go(self, begin, end):
        """Whether a statement can be left out. Not where a word at its end is changed anyway; and an assertion is for clang alone."""
        text = self._text(begin, end)
        found = self._token(begin) in ("continue", "break") or (begin + 1 < end and REMOVABLE.fullmatch(text))
        return found and self._token(end - 1) not in ("true", "false") and not text.endswith(".AssertHeld()")

    def _statement(self, begin, end):
        """Leaves a statement out, or changes what it returns."""
        text = self._text(begin, end)
        first = self._token(begin)
        returns = next(one.returns for one in reversed(self.blocks) if one.kind == "code")
        if first == "return":
            value = self._text(begin + 1, end)
            if not value and begin < end:
                self._note(begin, end, "", whole=True)
            elif returns == "bool" and not re.search(r"\s(==|!=|<=?|>=?|&&|\|\|)\s|^!|^(true|false)$", value):
                self._note(begin, end, f"return !({value})", whole=True)
            elif returns not in (None, "bool", "void") and value not in ("{}", "nullptr"):
                self._note(begin, end, "return {}", whole=True)
        elif self._may_go(begin, end):
            self._note(begin, end, "", whole=True)
        if first == CHECKED:
            self._note(begin, end, f"(void){text[len(CHECKED) :]}", whole=True)


def mutations(module, source):
    """By name, the source of each mutant of a module."""
    found, count = {}, Counter()
    for where, begin, end, text, whole in Reader(source).changes:
        if whole:
            before, after = source[begin:end], text or "left out"
        else:
            first, last = source.rfind("\n", 0, begin) + 1, source.find("\n", end)
            before, after = source[first:last], source[first:begin] + text + source[end:last]
        name = f"{module}: {where or 'module'}: {short(before)} => {short(after)}"
        count[name] += 1
        name += f" #{count[name]}" if count[name] > 1 else ""
        found[name] = source[:begin] + text + source[end:]
    return found
