output "f" {
  value = {
    abspath      = basename(abspath("x/y"))
    affix        = [startswith("abc", "a"), endswith("abc", "c"), strcontains("abc", "z")]
    base64       = base64decode(base64encode("hé"))
    can          = [can(tonumber("x")), can(tonumber("3"))]
    coalesce     = coalesce(null, "", "x")
    collections  = [concat([1], [2]), distinct(["a", "a"]), flatten([[1], [2, [3]]]), reverse([1, 2]), slice([1, 2, 3], 1, 2), sort(["b", "a"])]
    csv          = csvdecode("a,b\n1,2\n")
    dirs         = [dirname("a/b/c"), basename("a/b/c"), pathexpand("~/x"), path.root, path.module]
    duration     = duration_seconds("1h30m")
    exists       = [fileexists("functions.hcl"), fileexists("nowhere")]
    file         = chomp(file("../files/hello.txt"))
    fileset      = fileset("../files", "*.txt")
    format       = [format("%s-%03d", "a", 7), formatlist("%s!", ["a", "b"])]
    hashes       = [md5("a"), sha1("a"), sha256("a"), substr(sha512("a"), 0, 8), filesha256("../files/hello.txt")]
    index        = [index(["a", "b"], "b"), element(["a", "b"], 3), contains(["a"], "a")]
    json         = jsondecode(jsonencode({ a = [1, null, true] }))
    length       = [length([1, 2]), length({ a = 1 }), length("héé")]
    lookup       = [lookup({ a = 1 }, "a"), lookup({ a = 1 }, "b", "none")]
    maps         = [keys({ a = 1, b = 2 }), values({ a = 1 }), merge({ a = 1 }, { a = 2, b = 3 }), zipmap(["x"], [1])]
    numbers      = [abs(-1), ceil(1.2), floor(1.8), max(1, 3), min(1, 3), pow(2, 8), parseint("ff", 16), signum(-3), sum([1, 2.5]), log(8, 2)]
    one          = [one([]), one(["a"])]
    range        = range(1, 6, 2)
    regex        = [regex("a(.)", "xab"), regexall("[0-9]", "a1b2"), replace("aXbX", "X", "-"), replace("a1b2", "/[0-9]/", "#")]
    sets         = [setunion(["a"], ["b"]), setintersection(["a", "b"], ["b"]), setsubtract(["a", "b"], ["b"]), setproduct(["a"], ["b", "c"])]
    split        = [split(",", "a,b"), join("-", ["a", "b"]), compact(["a", ""]), chunklist([1, 2, 3], 2), coalescelist([], [1])]
    strings      = [upper("a"), lower("A"), title("ab c"), trim("xax", "x"), trimprefix("xa", "x"), trimsuffix("ax", "x"), trimspace(" a "), indent(2, "a\nb"), strlen("hé"), strrev("ab")]
    template     = templatefile("../files/greeting.tmpl", { name = "you", items = [1, 2] })
    to           = [tonumber("3"), tostring(3), tobool("true"), tolist(["a"]), toset(["b", "a", "a"]), tomap({ a = "b" })]
    truth        = [alltrue([true, false]), anytrue([true, false]), alltrue([])]
    try          = try(tonumber("x"), "fallback")
    type         = type([1])
    url          = urlencode("a b&c")
    yaml         = yamldecode("a: [1, 2]\nb: {c: d}\n")
    yamlencode   = yamlencode({ a = [1] })
    secret       = issensitive(sensitive("x"))
    env          = nonsensitive(env("NOT_SET", "default"))
  }
}
