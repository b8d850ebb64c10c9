/// A regular expression that is matched in linear time for any pattern. Patterns come from clients, and a
/// backtracking engine could take exponential time for some.
///
/// The pattern is compiled to a Glushkov automaton, which follows all possible matches at once instead of backtracking.
/// It has one state for each character, class or anchor of the pattern, and is in that state when it has just read the
/// symbol. The beginning and the end of the text count as symbols, which `^` and `$` read. There are at most 256
/// states, so that the set of current states is one SIMD vector. Matching allocates nothing.
///
/// ``PatternParser`` parses the pattern, `AutomatonBuilder` builds the automaton from the syntax tree, and `Automaton`
/// matches.
///
/// - SeeAlso: V. M. Glushkov, "The abstract theory of automata" (1961).
public struct RegularExpression: Sendable {
    /// The maximum length of a pattern in bytes.
    public static let longestPattern = 1_000
    /// The maximum length of a text in bytes. Bounds the time that matching takes.
    public static let longestText = 4_096

    public let pattern: String
    private let automaton: Automaton

    /// - Parameter ignoresCase: whether letters match in upper and lower case.
    /// - Throws: ``RegularExpressionError``, which says what the syntax does not allow.
    public init(_ pattern: String, ignoresCase: Bool = false) throws(RegularExpressionError) {
        guard pattern.utf8.count <= Self.longestPattern else {
            throw RegularExpressionError(
                "a pattern must have at most \(Self.longestPattern) bytes; got \(pattern.utf8.count)")
        }
        var parser = PatternParser(pattern)
        var builder = AutomatonBuilder(ignoresCase: ignoresCase)
        automaton = try builder.automaton(of: try parser.parse())
        self.pattern = pattern
    }

    /// Whether any part of the text matches.
    ///
    /// - Parameter text: valid UTF-8.
    /// - Returns: `nil` if the text is longer than ``longestText``.
    public func matches(_ text: UnsafeRawBufferPointer) -> Bool? {
        text.count <= Self.longestText ? automaton.matches(text) : nil
    }
}

/// The reason why a pattern is not valid, or too large.
public struct RegularExpressionError: Error, Equatable, CustomStringConvertible {
    public let description: String

    init(_ description: String) {
        self.description = description
    }
}

/// A set of states of an automaton.
struct StateSet: Equatable, Sendable {
    /// The maximum number of states: the bits of four 64-bit words.
    static let capacity = 256
    private var bits = SIMD4<UInt64>()

    var isEmpty: Bool { bits == SIMD4() }

    mutating func insert(_ state: Int) {
        bits[state / 64] |= 1 << UInt64(state % 64)
    }

    mutating func formUnion(_ other: StateSet) { bits |= other.bits }

    func intersection(_ other: StateSet) -> StateSet {
        var result = self
        result.bits &= other.bits
        return result
    }

    func union(_ other: StateSet) -> StateSet {
        var result = self
        result.bits |= other.bits
        return result
    }

    @inline(__always)
    func forEach(_ body: (Int) -> Void) {
        for word in 0..<4 {
            var rest = bits[word]
            while rest != 0 {
                body(word * 64 + rest.trailingZeroBitCount)
                rest &= rest - 1
            }
        }
    }
}

/// The symbol that one state of an automaton reads.
enum PatternSymbol: Sendable {
    case start
    case end
    case character(ScalarSet)
}

/// A compiled pattern. In each step it reads one character of the text and moves from the set of current states to the
/// set of the states that may follow them and read the character.
private struct Automaton: Sendable {
    /// The symbol that each state reads.
    var symbols: [PatternSymbol] = []
    /// For each state, the states that may follow it.
    var follow: [StateSet] = []
    /// For each ASCII character, the states that read it.
    var ascii: [StateSet] = []
    /// The states of `^`.
    var starts = StateSet()
    /// The states of `$`.
    var ends = StateSet()
    /// The states with which a match can begin.
    var first = StateSet()
    /// The states with which a match can end.
    var last = StateSet()
    /// Whether the pattern matches an empty part of the text, and therefore every text.
    var isNullable = false
    var ignoresCase = false

    /// Whether any part of the text matches: whether the automaton is ever in one of the last states.
    func matches(_ text: UnsafeRawBufferPointer) -> Bool {
        if isNullable { return true }
        // An empty text has its beginning and its end at the same place.
        var states = anchored(StateSet(), by: text.isEmpty ? starts.union(ends) : starts)
        if !states.intersection(last).isEmpty { return true }
        var position = 0
        while position < text.count {
            let byte = text[position]
            if byte < 0x80 {
                position += 1
                states = reachable(from: states).intersection(ascii[Int(byte)])
            } else {
                let scalar = Self.scalar(text, &position)
                states = reading(scalar, among: reachable(from: states))
            }
            if !states.intersection(last).isEmpty { return true }
        }
        return !anchored(states, by: ends).intersection(last).isEmpty
    }

    /// Adds the anchors that can be read at the beginning or the end of the text. Repeats this until nothing changes,
    /// because several anchors may follow each other.
    private func anchored(_ states: StateSet, by anchors: StateSet) -> StateSet {
        var states = states
        while true {
            let next = states.union(reachable(from: states).intersection(anchors))
            if next == states { return states }
            states = next
        }
    }

    /// Returns the states that may read the next symbol. The first states of the pattern are always among them, because
    /// a match may begin anywhere.
    private func reachable(from states: StateSet) -> StateSet {
        var result = first
        states.forEach { result.formUnion(follow[$0]) }
        return result
    }

    /// Returns those states that read a scalar beyond ASCII.
    private func reading(_ scalar: UInt32, among states: StateSet) -> StateSet {
        var result = StateSet()
        states.forEach { state in
            if case .character(let set) = symbols[state], set.contains(scalar, ignoresCase: ignoresCase) {
                result.insert(state)
            }
        }
        return result
    }

    /// Decodes a scalar of two to four bytes, and moves the position behind it.
    private static func scalar(_ text: UnsafeRawBufferPointer, _ position: inout Int) -> UInt32 {
        let lead = UInt32(text[position])
        let count = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2
        var scalar = lead & (0x7F >> UInt32(count))
        let end = min(position + count, text.count)
        position += 1
        while position < end {
            scalar = scalar << 6 | UInt32(text[position]) & 0x3F
            position += 1
        }
        return scalar
    }
}

/// Builds the automaton of a parsed pattern: adds a state for each symbol, and notes for each part of the pattern which
/// states a match of the part can begin and end with.
private struct AutomatonBuilder {
    /// A part of the pattern. Without states, it matches the empty text.
    private struct Part {
        /// Whether the part matches the empty text.
        var isNullable = true
        var first = StateSet()
        var last = StateSet()
    }

    private var automaton = Automaton()
    /// The number of nodes visited so far. It is limited, because nested repetitions of an empty group, such as
    /// `(((){9}){9}){9}`, take time but add no states.
    private var steps = 0
    private static let stepLimit = 4_096

    init(ignoresCase: Bool) {
        automaton.ignoresCase = ignoresCase
    }

    mutating func automaton(of node: PatternNode) throws(RegularExpressionError) -> Automaton {
        let whole = try part(node)
        automaton.isNullable = whole.isNullable
        automaton.first = whole.first
        automaton.last = whole.last
        automaton.ascii = Array(repeating: StateSet(), count: 128)
        for (state, symbol) in automaton.symbols.enumerated() {
            switch symbol {
            case .start: automaton.starts.insert(state)
            case .end: automaton.ends.insert(state)
            case .character(let set):
                for byte in 0..<128 where set.contains(UInt32(byte), ignoresCase: automaton.ignoresCase) {
                    automaton.ascii[byte].insert(state)
                }
            }
        }
        return automaton
    }

    /// Adds the states of a node.
    private mutating func part(_ node: PatternNode) throws(RegularExpressionError) -> Part {
        steps += 1
        guard steps <= Self.stepLimit else { throw Self.tooLarge }
        switch node {
        case .symbol(let symbol): return try state(symbol)
        case .sequence(let nodes):
            var whole = Part()
            for node in nodes { join(try part(node), to: &whole) }
            return whole
        case .choice(let nodes):
            var whole = Part(isNullable: false)
            for node in nodes {
                let part = try part(node)
                whole.isNullable = whole.isNullable || part.isNullable
                whole.first.formUnion(part.first)
                whole.last.formUnion(part.last)
            }
            return whole
        case .repetition(let node, let least, let most):
            return try repetition(node, least, most)
        }
    }

    /// Adds a state that reads a symbol.
    private mutating func state(_ symbol: PatternSymbol) throws(RegularExpressionError) -> Part {
        let state = automaton.symbols.count
        guard state < StateSet.capacity else { throw Self.tooLarge }
        automaton.symbols.append(symbol)
        automaton.follow.append(StateSet())
        var part = Part(isNullable: false)
        part.first.insert(state)
        part.last.insert(state)
        return part
    }

    /// Writes out a repetition: `x{2,3}` as `xxx?`, `x{2,}` as `xx+`, `x*` as an optional `x+`.
    private mutating func repetition(
        _ node: PatternNode, _ least: Int, _ most: Int?
    ) throws(RegularExpressionError) -> Part {
        let copies = most ?? max(least, 1)
        var whole = Part()
        for index in 0..<copies {
            var part = try part(node)
            let isUnlimited = most == nil && index + 1 == copies
            if isUnlimited { connect(part.last, to: part.first) }
            if index >= least { part.isNullable = true }
            join(part, to: &whole)
        }
        return whole
    }

    /// Appends a part to the parts of a sequence.
    private mutating func join(_ next: Part, to whole: inout Part) {
        connect(whole.last, to: next.first)
        if whole.isNullable { whole.first.formUnion(next.first) }
        whole.last = next.isNullable ? whole.last.union(next.last) : next.last
        whole.isNullable = whole.isNullable && next.isNullable
    }

    /// Lets some states follow others.
    private mutating func connect(_ states: StateSet, to next: StateSet) {
        states.forEach { automaton.follow[$0].formUnion(next) }
    }

    private static var tooLarge: RegularExpressionError {
        RegularExpressionError(
            "a pattern must have at most \(StateSet.capacity) characters and classes, each counted as often as it is repeated"
        )
    }
}
