public import Bucketing

/// An element of a project that a key identifies.
public protocol KeyedDefinition: Sendable, Equatable {
    var listKey: Identifier { get }
    /// What else it is looked up by: its own id, or what it refers to.
    var names: [Identifier] { get }
}

extension KeyedDefinition {
    public var names: [Identifier] { [] }
}

/// Elements in the order of the datafile. Of several with one key the last one counts, as in the reference SDK.
public struct DefinitionList<Element: KeyedDefinition>: Sendable, Equatable, Sequence {
    private var elements: [Element] = []
    private var indices: [Identifier: Int] = [:]
    /// Ascending, by the ``KeyedDefinition/names`` of the elements.
    private var indicesByName: [Identifier: [Int]] = [:]

    public init() {}

    public static func == (left: Self, right: Self) -> Bool { left.elements == right.elements }

    public subscript(key: Identifier) -> Element? { indices[key].map { elements[$0] } }

    /// Returns the elements with one of the ``KeyedDefinition/names``, or with one of some keys, in their order.
    public func all(naming names: [Identifier], orKeyed keys: [Identifier] = []) -> [Element] {
        Set(names.flatMap { indicesByName[$0] ?? [] } + keys.compactMap { indices[$0] }).sorted().map { elements[$0] }
    }

    public func last(naming name: Identifier) -> Element? { indicesByName[name]?.last.map { elements[$0] } }

    public func makeIterator() -> IndexingIterator<[Element]> { elements.makeIterator() }

    public mutating func append(_ element: Element) {
        note(element, at: elements.count)
        elements.append(element)
    }

    private mutating func note(_ element: Element, at index: Int) {
        indices[element.listKey] = index
        for name in element.names { indicesByName[name, default: []].append(index) }
    }

    /// Replaces the element with the same key, or appends the element.
    public mutating func set(_ element: Element) {
        guard let index = indices[element.listKey] else { return append(element) }
        let former = elements[index].names
        elements[index] = element
        guard former != element.names else { return }
        for name in former { indicesByName[name]?.removeAll { $0 == index } }
        for name in element.names {
            indicesByName[name, default: []].append(index)
            indicesByName[name]?.sort()
        }
    }

    /// Removes all elements with a key.
    public mutating func remove(_ key: Identifier) { remove([key]) }

    /// Removes all elements with one of some keys.
    public mutating func remove(_ keys: Set<Identifier>) {
        guard keys.contains(where: { indices[$0] != nil }) else { return }
        elements.removeAll { keys.contains($0.listKey) }
        noteAll()
    }

    private mutating func noteAll() {
        (indices, indicesByName) = ([:], [:])
        for (index, element) in elements.enumerated() { note(element, at: index) }
    }

    /// Puts the elements in the order of their ranks. Those of one rank keep their order.
    public mutating func sort(by rank: (Element) -> Int) {
        let ranks = elements.map(rank)
        guard zip(ranks, ranks.dropFirst()).contains(where: >) else { return }
        elements = ranks.indices.sorted { (ranks[$0], $0) < (ranks[$1], $1) }.map { elements[$0] }
        noteAll()
    }

    public var count: Int { elements.count }
    public var isEmpty: Bool { elements.isEmpty }

    public func last(where isWanted: (Element) -> Bool) -> Element? { elements.last(where: isWanted) }
}

/// Ids that depend only on the names of what they identify, so that what is removed and added again is the same.
public enum DerivedID {
    public static func of(_ name: String) -> String {
        let hash = Array(name.utf8).withUnsafeBytes { bytes in
            UInt64(MurmurHash3.hash(bytes, seed: 1)) << 32 | UInt64(MurmurHash3.hash(bytes, seed: 2))
        }
        return String(hash)
    }
}
