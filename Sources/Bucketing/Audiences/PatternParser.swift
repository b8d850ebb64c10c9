/// The syntax tree of a regular expression.
indirect enum PatternNode {
    case symbol(PatternSymbol)
    case sequence([PatternNode])
    /// The options of `a|b`.
    case choice([PatternNode])
    /// A quantifier: `x*` is repeated from 0 times without limit (`most` is `nil`).
    case repetition(PatternNode, least: Int, most: Int?)
}

/// Parses a regular expression by recursive descent. The syntax is a subset of the usual one;
/// <doc:AttributesAndSegments> lists it.
///
///     choice   = sequence ("|" sequence)*
///     sequence = repeated*
///     repeated = atom (("*" | "+" | "?" | "{" counts "}") "?"?)?
///     atom     = "(" choice ")" | "[" set "]" | "^" | "$" | "." | "\\" escape | character
///
/// Anything else is refused: look-around and back-references cannot be matched in linear time.
struct PatternParser {
    private let scalars: [Unicode.Scalar]
    /// The index of the next scalar.
    private var position = 0
    /// The number of groups around the position.
    private var depth = 0

    /// The maximum nesting of groups. Bounds the use of the stack.
    private static let deepest = 32
    /// The greatest number in `{n,m}`. An automaton has as many states, and each repetition of a character takes one.
    private static let mostRepetitions = 256

    init(_ pattern: String) {
        scalars = Array(pattern.unicodeScalars)
    }

    mutating func parse() throws(RegularExpressionError) -> PatternNode {
        let node = try choice()
        guard position == scalars.count else { throw refusal("`)` must close a group, or be written `\\)`") }
        return node
    }

    private var next: Unicode.Scalar? { position < scalars.count ? scalars[position] : nil }

    /// Skips a scalar if it is next.
    private mutating func skip(_ scalar: Unicode.Scalar) -> Bool {
        guard next == scalar else { return false }
        position += 1
        return true
    }

    private func refusal(_ reason: String) -> RegularExpressionError {
        RegularExpressionError("\(reason); at character \(position + 1) of the pattern")
    }

    private mutating func choice() throws(RegularExpressionError) -> PatternNode {
        var options = [try sequence()]
        while skip("|") { options.append(try sequence()) }
        return options.count == 1 ? options[0] : .choice(options)
    }

    private mutating func sequence() throws(RegularExpressionError) -> PatternNode {
        var nodes: [PatternNode] = []
        while let scalar = next, scalar != "|", scalar != ")" { nodes.append(try repeated(try atom())) }
        return .sequence(nodes)
    }

    /// Parses the quantifier of an atom, if it has one.
    private mutating func repeated(_ atom: PatternNode) throws(RegularExpressionError) -> PatternNode {
        let bounds: (least: Int, most: Int?)
        switch next {
        case "*": bounds = (0, nil)
        case "+": bounds = (1, nil)
        case "?": bounds = (0, 1)
        case "{": bounds = try counts()
        default: return atom
        }
        position += 1
        // Whether a quantifier is lazy changes which part of the text matches, but not whether one does.
        _ = skip("?")
        switch atom {
        case .symbol(.start), .symbol(.end): throw refusal("`^` and `$` cannot be repeated")
        default: return .repetition(atom, least: bounds.least, most: bounds.most)
        }
    }

    /// Reads `{n}`, `{n,}` or `{n,m}` up to the closing brace.
    private mutating func counts() throws(RegularExpressionError) -> (least: Int, most: Int?) {
        position += 1
        let form = "`{` must begin {n}, {n,} or {n,m} with numbers up to \(Self.mostRepetitions), or be written `\\{`"
        guard let least = number() else { throw refusal(form) }
        var most: Int? = least
        if skip(",") {
            if next == "}" {
                most = nil
            } else {
                guard let number = number() else { throw refusal(form) }
                most = number
            }
        }
        guard next == "}", max(least, most ?? 0) <= Self.mostRepetitions, most ?? least >= least else {
            throw refusal(form)
        }
        return (least, most)
    }

    /// Parses a decimal number. Any number above ``mostRepetitions`` is returned as one more than that, so that none
    /// overflows.
    ///
    /// - Returns: `nil` if the next scalar is no digit.
    private mutating func number() -> Int? {
        var number: Int?
        while let digit = next.flatMap({ "0"..."9" ~= $0 ? Int($0.value - 0x30) : nil }) {
            number = min((number ?? 0) * 10 + digit, Self.mostRepetitions + 1)
            position += 1
        }
        return number
    }

    /// Parses what a quantifier can follow: a group, a class, an anchor or a character.
    private mutating func atom() throws(RegularExpressionError) -> PatternNode {
        guard let scalar = next else { throw refusal("a pattern must not end here") }
        switch scalar {
        case "*", "+", "?", "{": throw refusal("`\(scalar)` must follow what it repeats, or be written `\\\(scalar)`")
        case "(": return try group()
        case "[": return .symbol(.character(try set()))
        default: break
        }
        position += 1
        switch scalar {
        case "^": return .symbol(.start)
        case "$": return .symbol(.end)
        case ".":
            var any = ScalarSet.lineFeed
            any.isInverted = true
            return .symbol(.character(any))
        case "\\": return .symbol(.character(try escape()))
        default: return .symbol(.character(ScalarSet(scalar.value...scalar.value)))
        }
    }

    /// Parses `(…)` or `(?:…)`. Both mean the same, because groups capture nothing.
    private mutating func group() throws(RegularExpressionError) -> PatternNode {
        position += 1
        if next == "?" {
            position += 1
            guard skip(":") else {
                throw refusal("a group must begin with `(` or `(?:`; options, names and look-around are not supported")
            }
        }
        depth += 1
        guard depth <= Self.deepest else { throw refusal("groups must be nested at most \(Self.deepest) deep") }
        let node = try choice()
        guard skip(")") else { throw refusal("`(` must be closed by `)`, or be written `\\(`") }
        depth -= 1
        return node
    }

    /// Reads what follows a backslash.
    private mutating func escape() throws(RegularExpressionError) -> ScalarSet {
        guard let scalar = next else { throw refusal("`\\` must be followed by a character") }
        position += 1
        var set: ScalarSet
        switch scalar {
        case "d", "D": set = .digit
        case "w", "W": set = .word
        case "s", "S": set = .space
        case "n": set = .lineFeed
        case "r": set = ScalarSet(0x0D...0x0D)
        case "t": set = ScalarSet(0x09...0x09)
        case _ where scalar.isASCII && !scalar.properties.isAlphabetic && !("0"..."9" ~= scalar):
            set = ScalarSet(scalar.value...scalar.value)
        default:
            position -= 1
            throw refusal(
                "`\\\(scalar)` is not supported: `\\` must precede a sign, or one of d, D, w, W, s, S, n, r, t")
        }
        set.isInverted = ["D", "W", "S"].contains(scalar)
        return set
    }

    /// Parses a class such as `[a-z\d]` or `[^"]`.
    private mutating func set() throws(RegularExpressionError) -> ScalarSet {
        position += 1
        var set = ScalarSet()
        set.isInverted = skip("^")
        var isEmpty = true
        while !skip("]") {
            isEmpty = false
            guard let first = next, first != "[" else {
                throw refusal("a class must end with `]`, and have `[` as `\\[`")
            }
            position += 1
            var element = first == "\\" ? try escape() : ScalarSet(first.value...first.value)
            // A hyphen at the end of the class stands for itself.
            if next == "-", position + 1 < scalars.count, scalars[position + 1] != "]" {
                position += 1
                element = try range(from: element)
            }
            set.formUnion(element)
        }
        guard !isEmpty else { throw refusal("a class must have a character") }
        return set
    }

    /// Parses the end of a range in a class, behind the hyphen.
    private mutating func range(from first: ScalarSet) throws(RegularExpressionError) -> ScalarSet {
        guard let scalar = next else { throw refusal("a class must end with `]`") }
        position += 1
        let last = scalar == "\\" ? try escape() : ScalarSet(scalar.value...scalar.value)
        guard let lower = first.only, let upper = last.only, lower <= upper else {
            throw refusal("a range in a class must have a first character and a last one that is not before it")
        }
        return ScalarSet(lower...upper)
    }
}

/// A set of characters: what a class such as `[a-z]` or `\d` stands for.
struct ScalarSet: Sendable {
    private var ranges: [ClosedRange<UInt32>]
    /// Whether the set has all characters except those in the ranges.
    var isInverted = false

    static let digit = ScalarSet(0x30...0x39)
    static let word = ScalarSet(0x30...0x39, 0x41...0x5A, 0x5F...0x5F, 0x61...0x7A)
    static let space = ScalarSet(0x09...0x0D, 0x20...0x20)
    static let lineFeed = ScalarSet(0x0A...0x0A)

    init(_ ranges: ClosedRange<UInt32>...) {
        self.ranges = ranges
    }

    /// Adds the characters of another set to the ranges. Whether this set is inverted does not matter: `[^\d]` has the
    /// ranges of `\d`.
    mutating func formUnion(_ other: ScalarSet) {
        guard other.isInverted else { return ranges += other.ranges }
        // Adds the gaps between the ranges of the other set.
        var next: UInt32 = 0
        for range in other.ranges.sorted(by: { $0.lowerBound < $1.lowerBound }) {
            if range.lowerBound > next { ranges.append(next...range.lowerBound - 1) }
            next = max(next, range.upperBound + 1)
        }
        ranges.append(next...UInt32.max)
    }

    func contains(_ scalar: UInt32, ignoresCase: Bool) -> Bool {
        var isInRanges = rangesContain(scalar)
        if !isInRanges, ignoresCase, let properties = Unicode.Scalar(scalar)?.properties {
            isInRanges = rangesContain(properties.lowercaseMapping) || rangesContain(properties.uppercaseMapping)
        }
        return isInRanges != isInverted
    }

    private func rangesContain(_ scalar: UInt32) -> Bool {
        ranges.contains { $0.contains(scalar) }
    }

    /// Whether the ranges contain the only character of a case mapping. A mapping to several characters (`ß` to `SS`)
    /// never matches.
    private func rangesContain(_ mapping: String) -> Bool {
        var scalars = mapping.unicodeScalars.makeIterator()
        guard let scalar = scalars.next(), scalars.next() == nil else { return false }
        return rangesContain(scalar.value)
    }
}

extension ScalarSet {
    /// The character of a set that has exactly one; `nil` for any other set.
    fileprivate var only: UInt32? {
        guard !isInverted, ranges.count == 1, let range = ranges.first, range.count == 1 else { return nil }
        return range.lowerBound
    }
}
