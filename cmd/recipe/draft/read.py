"""Describe a Python file or a shell script as JSON, without running any of it.

Usage: python -I read.py python|shell < FILE. The file is parsed, never imported. The output has no value that the
parser could not read as a literal: such a setting has its source text in `code` instead.
"""

import ast
import builtins
import json
import os
import re
import shlex
import sys
import textwrap


class Unknown(Exception):
    """The value is known only when the program runs."""


# Names stand for values, and values may name others: a small file can have values of any size.
MOST_VALUES = 100_000  # of all settings, each use of a name counted
MOST_TEXT = 4 << 20  # characters of these values
LONGEST_WORD = 64 << 10  # characters of a word of a shell, with the values of variables
MOST_MEMORY = 2 << 30  # bytes


class File:
    """A parsed file: what its names were assigned last, and what each of its statements needs and makes."""

    def __init__(self, text):
        self.text = text
        self.tree = ast.parse(text)
        self.values = {}
        self.values_left, self.text_left = MOST_VALUES, MOST_TEXT
        self.imports = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
                self.values[node.targets[0].id] = node.value
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value:
                self.values[node.target.id] = node.value
            elif isinstance(node, ast.ImportFrom) and node.module:
                for name in node.names:
                    self.imports[name.asname or name.name] = ("." * node.level + node.module, name.name)
            elif isinstance(node, ast.Import):
                for name in node.names:
                    self.imports[name.asname or name.name.split(".")[0]] = (name.name, "")
        self.functions = {n.name: n for n in self.tree.body if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))}

    def literal(self, node, depth=0):
        """The value of an expression of constants and of names that were assigned one."""
        self.values_left -= 1
        if depth > 50 or self.values_left < 0:
            raise Unknown
        again = lambda other: self.literal(other, depth + 1)  # noqa: E731
        match node:
            case ast.Constant(value=value) if isinstance(value, (str, int, float, bool, type(None))):
                self.text_left -= len(value) if isinstance(value, str) else 0
                if self.text_left < 0:
                    raise Unknown
                return value
            case ast.Name(id=name) if name in self.values:
                return again(self.values[name])
            case ast.List(elts=parts) | ast.Tuple(elts=parts) | ast.Set(elts=parts):
                return [again(part) for part in parts]
            case ast.Dict(keys=keys, values=values) if all(keys):
                return {str(again(key)): again(value) for key, value in zip(keys, values)}
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -self.number(again(operand))
            case ast.BinOp(op=op, left=left, right=right):
                a, b = self.number(again(left)), self.number(again(right))
                if isinstance(op, ast.Mult):
                    return a * b
                if isinstance(op, ast.Add):
                    return a + b
                if isinstance(op, ast.Sub):
                    return a - b
                if isinstance(op, (ast.Div, ast.FloorDiv)) and b:
                    return a / b if isinstance(op, ast.Div) else a // b
        raise Unknown

    @staticmethod
    def number(value):
        if isinstance(value, bool) or not isinstance(value, (int, float)) or abs(value) > 1e15:
            raise Unknown
        return value

    def code(self, node):
        return ast.get_source_segment(self.text, node) or ast.unparse(node)

    def setting(self, name, node):
        try:
            value = self.literal(node)
            json.dumps(value, allow_nan=False)
            return {"name": name, "line": node.lineno, "value": value}
        except (Unknown, ValueError, RecursionError):
            return {"name": name, "line": node.lineno, "code": self.code(node)}

    def resolved(self, node, depth=0):
        """The expression that a name was assigned."""
        while isinstance(node, ast.Name) and node.id in self.values and depth < 50:
            node, depth = self.values[node.id], depth + 1
        return node

    def calls(self, ends):
        """Calls of a function, by the last part of its name."""
        return [n for n in ast.walk(self.tree) if isinstance(n, ast.Call) and called(n).split(".")[-1] in ends]

    def arguments(self, call, positions=()):
        pairs = list(zip(positions, call.args)) + [(k.arg, k.value) for k in call.keywords if k.arg]
        return [self.setting(name, node) for name, node in pairs]

    def extract(self, names, scope=()):
        """Source text of the statements that define names, with all that these need, in the order of the file."""
        statements = list(self.tree.body) + [s for s in scope if s not in self.tree.body]
        wanted, known, chosen = set(names), set(), set()
        while wanted - known:
            name = (wanted - known).pop()
            known.add(name)
            for number, statement in enumerate(statements):
                if name in defined(statement) and not is_guard(statement):
                    chosen.add(number)
                    wanted |= used(statement)
        for number, statement in enumerate(statements):
            if isinstance(statement, ast.ImportFrom) and statement.module == "__future__":
                chosen.add(number)
        ordered = sorted((statements[n] for n in chosen), key=lambda s: first_line(s))
        return [self.source(s) for s in ordered], sorted(known - set(dir(builtins)))

    def source(self, statement):
        lines = self.text.splitlines()[first_line(statement) - 1 : statement.end_lineno]
        return textwrap.dedent("\n".join(lines))


def first_line(statement):
    return min([statement.lineno] + [d.lineno for d in getattr(statement, "decorator_list", [])])


def is_guard(statement):
    """The statement is `if __name__ == "__main__":`."""
    return isinstance(statement, ast.If) and "__name__" in {n.id for n in ast.walk(statement.test)
                                                            if isinstance(n, ast.Name)}


def called(call):
    """The dotted name of what a call calls; empty: it has none."""
    node, parts = call.func, []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return ".".join(reversed(parts))
    return ".".join([node.id] + parts[::-1])


def defined(statement):
    """The names that a statement of the outermost level gives a value."""
    match statement:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return {name}
        case ast.Import(names=names):
            return {n.asname or n.name.split(".")[0] for n in names}
        case ast.ImportFrom(names=names):
            return {n.asname or n.name for n in names}
    return {n.id for n in ast.walk(statement) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}


def used(statement):
    """The names that a statement reads."""
    changed = {n.target.id for n in ast.walk(statement) if isinstance(n, ast.AugAssign)
               and isinstance(n.target, ast.Name)}
    return changed | {n.id for n in ast.walk(statement) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}


def signature(function):
    arguments = function.args
    names = [a.arg for a in arguments.posonlyargs + arguments.args + arguments.kwonlyargs]
    return {"name": function.name, "line": function.lineno, "arguments": names, "kwargs": bool(arguments.kwarg)}


def enclosing(file, call):
    """The statements of the function in which a call stands; none: it stands in the file itself."""
    for node in ast.walk(file.tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and call in list(ast.walk(node)):
            return node.body
    for node in file.tree.body:
        if is_guard(node) and call in list(ast.walk(node)):
            return node.body
    return []


def describe_trainer(file):
    """What a script with TRL's GRPOTrainer trains, on what, by which rewards."""
    trainers = file.calls({"GRPOTrainer"})
    if not trainers:
        return None
    call = trainers[-1]
    scope = enclosing(file, call)
    parts = dict(zip(("model", "reward_funcs", "args", "train_dataset", "eval_dataset"), call.args))
    parts.update({k.arg: k.value for k in call.keywords if k.arg})
    found = {"line": call.lineno, "trainers": len(trainers), "settings": [], "peft": [], "rewards": [], "other": []}
    config = file.resolved(parts.get("args"))
    if isinstance(config, ast.Call):
        found["settings"] = file.arguments(config)
        found["config"] = called(config)
    elif parts.get("args") is not None:
        found["other"].append({"name": "args", "line": call.lineno, "code": file.code(parts["args"])})
    peft = file.resolved(parts.get("peft_config"))
    if isinstance(peft, ast.Call):
        found["peft"] = file.arguments(peft)
    model = file.resolved(parts.get("model"))
    if isinstance(model, ast.Call) and model.args:
        model = model.args[0]  # AutoModelForCausalLM.from_pretrained(NAME)
    if model is not None:
        found["model"] = file.setting("model", model)
    describe_rewards(file, parts.get("reward_funcs"), scope, found)
    describe_dataset(file, parts.get("train_dataset"), scope, found)
    known = {"model", "reward_funcs", "args", "train_dataset", "peft_config", "processing_class"}
    found["other"] += [file.setting(name, node) for name, node in parts.items() if name not in known]
    return found


def describe_rewards(file, node, scope, found):
    node = file.resolved(node)
    several = node.elts if isinstance(node, (ast.List, ast.Tuple)) else [node] if node is not None else []
    copied, made = [], []
    for number, one in enumerate(several, 1):
        reward = {"line": one.lineno, "code": file.code(one)}
        if isinstance(one, ast.Constant) and isinstance(one.value, str):
            reward["model"] = one.value
        elif isinstance(one, ast.Name) and one.id in file.imports and one.id not in file.functions:
            module, name = file.imports[one.id]
            reward.update(module=module, name=name or one.id)
        elif isinstance(one, ast.Attribute) and isinstance(one.value, ast.Name) and one.value.id in file.imports:
            module, name = file.imports[one.value.id]
            reward.update(module=".".join(filter(None, (module, name))), name=one.attr)
        elif isinstance(one, ast.Name):
            copied.append(one.id)
            reward["name"] = one.id
        else:
            made.append((f"reward_{number}", one))
            reward["name"] = f"reward_{number}"
        found["rewards"].append(reward)
    names = set(copied).union(*(used(one) for _, one in made))
    pieces, _ = file.extract(names, scope)
    pieces += [f"{name} = {file.code(one)}" for name, one in made]
    found["reward_source"] = pieces if copied or made else []


def describe_dataset(file, node, scope, found):
    if node is None:
        return
    # A name that is assigned once, the result of load_dataset alone, needs no program.
    made = file.resolved(node)
    target = made.value if isinstance(made, ast.Subscript) else made
    plain = isinstance(target, ast.Call) and called(target).split(".")[-1] == "load_dataset"
    if isinstance(node, ast.Name):
        stores = [n for n in ast.walk(file.tree) if isinstance(n, ast.Name) and n.id == node.id
                  and isinstance(n.ctx, ast.Store)]
        plain = plain and len(stores) == 1
    if plain:
        found["dataset"] = file.arguments(target, ("path", "name"))
        if made is not target:
            found["dataset"].append(file.setting("split", made.slice))
        return
    before = [s for s in scope if s.end_lineno < found["line"]]
    pieces, _ = file.extract({n.id for n in ast.walk(node) if isinstance(n, ast.Name)}, before)
    named = isinstance(node, ast.Name) and node.id == "train_dataset"
    found["dataset_source"] = pieces + ([] if named else [f"train_dataset = {file.code(node)}"])
    found["dataset_line"] = node.lineno


def describe_environments(file):
    """Classes of Atropos's environments, with the literals that their config_init returns."""
    found = []
    for node in file.tree.body:
        bases = [ast.unparse(b).split(".")[-1] for b in getattr(node, "bases", [])]
        if not isinstance(node, ast.ClassDef) or not any(b.endswith("BaseEnv") or b.endswith("Env") for b in bases):
            continue
        one = {"name": node.name, "line": node.lineno, "settings": [], "servers": []}
        for call in [n for n in ast.walk(node) if isinstance(n, ast.Call)]:
            name = called(call).split(".")[-1]
            if name.endswith("EnvConfig"):
                one["settings"] = file.arguments(call)
            elif name == "APIServerConfig":
                one["servers"] = file.arguments(call)
        found.append(one)
    cli = [called(c).split(".")[0] for c in file.calls({"cli"})]
    return [one for one in found if any(m.split(".")[0] == "atroposlib" for m, _ in file.imports.values())], cli


METADATA = re.compile(r"(?m)^# /// script\s*$((?:\n#.*)*?)\n# ///\s*$")


def dependencies(text):
    """The packages that a script names in its head, as PEP 723 has it."""
    head = METADATA.search(text)
    lines = head[1].replace("\n#", "\n") if head else ""
    named = re.search(r"(?ms)^\s*dependencies\s*=\s*(\[.*?^\s*\]|\[[^\n]*\])", lines)
    try:
        found = ast.literal_eval(named[1]) if named else []
    except (ValueError, SyntaxError):
        return []
    return [d for d in found if isinstance(d, str)]


def describe_python(text):
    try:
        file = File(text)
    except SyntaxError as problem:
        return {"error": {"line": problem.lineno or 1, "text": problem.msg}}
    environments, cli = describe_environments(file)
    bases = {ast.unparse(b).split(".")[-1].split("[")[0] for n in file.tree.body if isinstance(n, ast.ClassDef)
             for b in n.bases}
    return {
        "trl": describe_trainer(file),
        "atropos": environments,
        "cli": cli,
        "taskset": "Taskset" in bases,
        "load_environment": "load_environment" in file.functions,
        "dependencies": dependencies(text),
        "functions": [signature(f) for f in file.functions.values() if not f.name.startswith("_")],
        "names": sorted({name for s in file.tree.body for name in defined(s)} | set(file.functions) | set(file.imports)
                        | {n.name for n in file.tree.body if isinstance(n, ast.ClassDef)}),
    }


VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)(?::?-((?:[^{}]|\{[^{}]*\})*))?\})")
ARRAY = re.compile(r"\$\{(\w+)\[@\]\}")


def substituted(text, assigned, depth=0):
    """Text with the variables put in that are known, and whether all are."""
    complete = depth < 10 and "$(" not in text and "`" not in text
    left = LONGEST_WORD

    def put(match):
        nonlocal complete, left
        value = assigned.get(match[1] or match[2])
        if value is None and match[3] is not None:
            value, known = substituted(match[3], assigned, depth + 1)
            complete = complete and known
        left -= len(value or "")
        complete = complete and value is not None and left >= 0
        return match[0] if value is None or left < 0 else value

    made = VARIABLE.sub(put, text) if depth < 10 else text
    return made, complete and "${" not in made


def without_arrays(words):
    """Words with the elements of arrays, NAME=(…), where "${NAME[@]}" stands for them."""
    arrays, out, name = {}, [], None
    for word in words:
        if name is None and (begun := re.match(r"(\w+)\+?=\(", word)):
            name, word = begun[1], word[begun.end() :]
            arrays.setdefault(name, [])
        if name is not None:
            closed = word.endswith(")")
            if element := word[:-1] if closed else word:
                arrays[name].append(element)
            if closed:
                name = None
        elif array := ARRAY.fullmatch(word):
            out += arrays.get(array[1], [])
        else:
            out.append(word)
    return out


def describe_shell(text):
    """The settings that a script gives to verl's main_ppo (key=value), to a script of TRL's or to trl grpo (--key
    value), with the script's own variables put in."""
    try:
        words = without_arrays(shlex.split(text.replace("\\\n", " "), comments=True))
    except ValueError as problem:
        return {"error": {"line": 1, "text": f"the quotes of the script are not closed: {problem}"}}
    assigned = {"HOME": os.path.expanduser("~"), "PWD": os.getcwd()}
    verl = any(starts_verl(word) for word in words)
    for number, word in enumerate(words):
        name, equals, value = word.partition("=")
        if equals and re.fullmatch(r"\w+", name):
            value, complete = substituted(value, assigned)
            if complete:
                assigned[name] = value
        elif starts_verl(word):
            return {"program": word, "settings": hydra_settings(words[number + 1 :], assigned, text)}
        elif not verl and (word.endswith(".py") or words[max(number - 1, 0) : number + 1] == ["trl", "grpo"]):
            script, complete = substituted(word, assigned)
            if complete:
                found = flag_settings(words[number + 1 :], assigned, text)
                return {"program": "trl grpo" if word == "grpo" else "", "script": script, "settings": found}
    return {"program": "", "settings": []}


def starts_verl(word):
    return word.startswith("verl.trainer.main_") or word.endswith("main_ppo.py")


def hydra_settings(words, assigned, text):
    settings = []
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            if word.startswith(("-", "$@", "${@", ">", "2>", "\\")):
                continue
            break
        value, complete = substituted(value, assigned)
        settings.append({"name": name.lstrip("+"), "line": line_of(text, name + "="),
                         ("text" if complete else "code"): value})
    return settings


def flag_settings(words, assigned, text):
    settings = []
    for word in words:
        if word in ("&", "&&", "|", ";", ">", "2>") or word.startswith(("$@", "${@")):
            break
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            one = {"name": name.replace("-", "_"), "line": line_of(text, "--" + name), "texts": []}
            settings.append(one)
            word = value
            if not equals:
                continue
        if settings:
            value, complete = substituted(word.rstrip(","), assigned)
            if complete:
                settings[-1]["texts"].append(value)
            else:
                settings[-1]["code"] = value
    return settings


def line_of(text, name):
    at = text.find(name)
    return text.count("\n", 0, max(at, 0)) + 1


def limit_memory():
    """A file of a stranger takes no more memory than this, whatever it makes of the parser."""
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    except (ImportError, OSError, ValueError):
        pass  # there is no such limit on this system


def main():
    limit_memory()
    text = sys.stdin.buffer.read().decode("utf-8")
    described = describe_python(text) if sys.argv[1] == "python" else describe_shell(text)
    json.dump(described, sys.stdout)


main()
