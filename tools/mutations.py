"""Makes every small change to a module's source that tests ought to notice, and a name for each; tools/mutants.py runs them.

A name has the function, the text of the line and the change. It has no line number, so it stays the same while the line does.
"""

import ast
import copy
from collections import Counter

SWAPS = {
    **{
        ast.Eq: ast.NotEq,
        ast.NotEq: ast.Eq,
        ast.Is: ast.IsNot,
        ast.IsNot: ast.Is,
        ast.In: ast.NotIn,
        ast.NotIn: ast.In,
    },
    **{ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.And: ast.Or, ast.Or: ast.And},
    **{ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.BitAnd: ast.BitOr},
}


def without(items, at):
    return [*items[:at], *items[at + 1 :]]


def others(node):
    """The changes of one expression or statement: the nodes, or lists of statements, that take its place."""
    if isinstance(node, ast.Compare) and type(node.ops[0]) in SWAPS:
        yield ast.Compare(node.left, [SWAPS[type(node.ops[0])](), *node.ops[1:]], node.comparators)
    if isinstance(node, ast.BoolOp):
        yield ast.BoolOp(SWAPS[type(node.op)](), node.values)
    if isinstance(node, ast.BinOp) and type(node.op) in SWAPS:
        yield ast.BinOp(node.left, SWAPS[type(node.op)](), node.right)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        yield node.left  # a flag less
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield node.operand
    if isinstance(node, ast.Constant) and type(node.value) in (bool, int):
        yield ast.Constant(not node.value if isinstance(node.value, bool) else node.value + 1)
    if isinstance(node, ast.IfExp):
        yield ast.IfExp(node.test, node.orelse, node.body)
    if isinstance(node, ast.Tuple) and isinstance(node.ctx, ast.Load) and len(node.elts) > 1:
        yield from (ast.Tuple(without(node.elts, at), ast.Load()) for at in range(len(node.elts)))
    if isinstance(node, ast.If) and not isinstance(node.test, (ast.Compare, ast.UnaryOp)):
        yield ast.If(ast.UnaryOp(ast.Not(), node.test), node.body, node.orelse)
    if isinstance(node, ast.Return) and node.value and ast.unparse(node.value) != "None":
        yield ast.Return(ast.Constant(None))
    if isinstance(node, ast.With) and not any(item.optional_vars for item in node.items):
        yield node.body
    if isinstance(node, ast.Try) and node.finalbody:
        yield [*node.body, *node.finalbody] if not node.handlers else ast.Try(node.body, node.handlers, node.orelse, [])
    plain = isinstance(node, ast.Assign) and not isinstance(node.targets[0], (ast.Name, ast.Tuple))
    call = isinstance(node, ast.Expr) and isinstance(node.value, (ast.Call, ast.Yield))
    # A method whose body is ``raise NotImplementedError`` declares what subclasses define. No test reaches it.
    raises = isinstance(node, ast.Raise) and ast.unparse(node) != "raise NotImplementedError"
    if call or plain or raises or isinstance(node, (ast.AugAssign, ast.Delete, ast.Continue, ast.Break)):
        yield ast.Pass()


def line(node):
    """A statement as one line of text; of a compound statement its first line."""
    if isinstance(node, list):
        return " ".join(map(line, node))
    if isinstance(node, ast.Try):
        caught = [f"except {ast.unparse(one.type)}" for one in node.handlers]
        return ", ".join(["try", *caught, *(["finally"] if node.finalbody else [])])
    head = copy.copy(node)
    for block in ("body", "orelse"):
        if isinstance(getattr(node, block, None), list):
            setattr(head, block, [])
    text = " ".join(ast.unparse(head).split())
    return text if len(text) <= 160 else text[:157] + "..."


class Replaced(ast.NodeTransformer):
    """Puts one node in place of another."""

    def __init__(self, old, new):
        self._old, self._new = old, new

    def visit(self, node):
        return self._new if node is self._old else self.generic_visit(node)


def above(tree):
    """By node: the nodes around it, the nearest first. Types and decorators are left out."""
    found, waiting = {}, [(tree, ())]
    while waiting:
        node, path = waiting.pop(0)
        found[node] = path
        for name, value in ast.iter_fields(node):
            if name not in ("annotation", "returns", "decorator_list", "bases"):
                children = value if isinstance(value, list) else [value]
                waiting += [(child, (node, *path)) for child in children if isinstance(child, ast.AST)]
    return found


def mutations(module, source):
    """By name, the source of each mutant of a module."""
    tree, found, count = ast.parse(source), {}, Counter()
    for number, node in enumerate(above(tree)):
        for choice in range(sum(1 for _ in others(node))):
            copied = copy.deepcopy(tree)
            paths = above(copied)
            target = list(paths)[number]
            inside = [target, *paths[target]]
            statement = next((one for one in inside if isinstance(one, ast.stmt)), None)
            where = ".".join(one.name for one in reversed(inside) if isinstance(one, (ast.FunctionDef, ast.ClassDef)))
            new, before = list(others(target))[choice], line(statement)
            Replaced(target, new).visit(copied)
            name = f"{module}: {where or 'module'}: {before} => {line(new if target is statement else statement)}"
            count[name] += 1
            name += f" #{count[name]}" if count[name] > 1 else ""
            found[name] = ast.unparse(ast.fix_missing_locations(copied)) + "\n"
    return found
