public import Bucketing
import JSON

/// An element of a project that is identified by a key.
public protocol KeyedDefinition: Sendable, Equatable {
    /// The key by which a ``DefinitionList`` finds the element.
    var listKey: Identifier { get }
    /// Further names by which a list finds the element: its id, or the ids or keys of the elements that it refers to.
    var names: [Identifier] { get }
    /// Whether the element needs work at intervals, such as computing its results. A list finds the notable elements
    /// quickly, because few elements are notable, and they are looked up often.
    var isNotable: Bool { get }
}

extension KeyedDefinition {
    public var names: [Identifier] { [] }
    public var isNotable: Bool { false }
}

/// Elements in the order of the datafile. If several have the same key, the last one counts, as in the reference SDK.
///
/// Lists share the elements that no edit has changed, so that copying and comparing them is fast.
public struct DefinitionList<Element: KeyedDefinition>: Sendable, Equatable, Sequence {
    /// Holds one element. Lists with the same box have the same element, so it need not be compared.
    private final class Box: Sendable {
        let element: Element

        init(_ element: Element) { self.element = element }

        static func areSame(_ left: Box, _ right: Box) -> Bool { left === right || left.element == right.element }
    }

    /// The elements in the order of the list.
    private var boxes: [Box] = []
    /// The index of the last element with each key.
    private var indicesByKey: [Identifier: Int] = [:]
    /// The indices of the elements with each of the ``KeyedDefinition/names``, in ascending order.
    private var indicesByName: [Identifier: [Int]] = [:]
    /// The keys of the elements that are ``KeyedDefinition/isNotable``.
    private var notableKeys: Set<Identifier> = []
    /// The keys of the elements that were set, appended or removed since ``forgetChanges()``.
    public private(set) var touched: Set<Identifier> = []
    /// The elements of the list whose keys are ``touched``, in the order of the list.
    public var touchedElements: [Element] { all(naming: [], orKeyed: Array(touched)) }

    public init() {}

    public static func == (left: Self, right: Self) -> Bool {
        left.boxes.count == right.boxes.count
            && left.boxes.unsharedPlaces(with: right.boxes).allSatisfy { Box.areSame(left.boxes[$0], right.boxes[$0]) }
    }

    /// Returns the last element with a key; `nil` if there is none.
    public subscript(key: Identifier) -> Element? { indicesByKey[key].map { boxes[$0].element } }

    /// Whether the element with a key differs from that in another list. True if only one of the lists has it.
    public func differs(_ key: Identifier, from other: Self?) -> Bool {
        switch (indicesByKey[key], other?.indicesByKey[key]) {
        case (let index?, let otherIndex?): other.map { !Box.areSame(boxes[index], $0.boxes[otherIndex]) } ?? true
        case (nil, nil): false
        default: true
        }
    }

    /// Returns the touched elements with their indices.
    ///
    /// - Parameter former: the list of which this one is an edited copy.
    /// - Returns: `nil` if an element was added, removed or moved.
    public func changedElements(since former: Self) -> [(index: Int, element: Element)]? {
        guard boxes.count == former.boxes.count else { return nil }
        var changed: [(index: Int, element: Element)] = []
        for key in touched {
            guard let index = indicesByKey[key], former.indicesByKey[key] == index else { return nil }
            changed.append((index, boxes[index].element))
        }
        return changed
    }

    /// Whether anything differs from a former list.
    ///
    /// - Parameter former: the list of which this one is an edited copy.
    public func hasChanges(since former: Self) -> Bool {
        changedElements(since: former) == nil || touched.contains { differs($0, from: former) }
    }

    public func contains(_ key: Identifier) -> Bool { indicesByKey[key] != nil }

    /// The elements that are ``KeyedDefinition/isNotable``, in the order of the list.
    public var notable: [Element] { notableKeys.isEmpty ? [] : all(naming: [], orKeyed: Array(notableKeys)) }

    /// Returns the elements with one of the ``KeyedDefinition/names``, or with one of some keys, in the order of the
    /// list.
    public func all(naming names: [Identifier], orKeyed keys: [Identifier] = []) -> [Element] {
        var found = Set(names.flatMap { indicesByName[$0] ?? [] })
        for key in keys { if let index = indicesByKey[key] { found.insert(index) } }
        return elements(at: found.sorted())
    }

    /// Returns the elements at some indices, each of which must be less than ``count``.
    public func elements(at indices: [Int]) -> [Element] { indices.map { boxes[$0].element } }

    /// Returns the keys of the elements with a name, in the order of the list.
    public func keys(naming name: Identifier) -> [Identifier] {
        (indicesByName[name] ?? []).map { boxes[$0].element.listKey }
    }

    /// Returns the last element with a name; `nil` if there is none.
    public func last(naming name: Identifier) -> Element? { indicesByName[name]?.last.map { boxes[$0].element } }

    public func makeIterator() -> some IteratorProtocol<Element> { boxes.lazy.map { $0.element }.makeIterator() }

    public var underestimatedCount: Int { boxes.count }

    /// Returns a part of each element, without copying the elements.
    public func map<Part>(_ part: (Element) -> Part) -> [Part] { boxes.map { part($0.element) } }

    /// Returns a part of those elements that have it, without copying the elements.
    public func compactMap<Part>(_ part: (Element) -> Part?) -> [Part] { boxes.compactMap { part($0.element) } }

    // MARK: Changes

    /// Appends an element, even if there is one with the same key.
    public mutating func append(_ element: Element) {
        addToIndices(element, at: boxes.count)
        touched.insert(element.listKey)
        boxes.append(Box(element))
    }

    private mutating func addToIndices(_ element: Element, at index: Int) {
        indicesByKey[element.listKey] = index
        for name in element.names { indicesByName[name, default: []].append(index) }
        updateNotableKeys(element)
    }

    private mutating func updateNotableKeys(_ element: Element) {
        if element.isNotable { notableKeys.insert(element.listKey) } else { notableKeys.remove(element.listKey) }
    }

    /// Replaces the element with the same key, or appends the element.
    public mutating func set(_ element: Element) {
        guard let index = indicesByKey[element.listKey] else { return append(element) }
        let formerNames = boxes[index].element.names
        boxes[index] = Box(element)
        touched.insert(element.listKey)
        updateNotableKeys(element)
        guard formerNames != element.names else { return }
        for name in formerNames { indicesByName[name]?.removeAll { $0 == index } }
        for name in element.names {
            indicesByName[name, default: []].append(index)
            indicesByName[name]?.sort()
        }
    }

    /// Removes all elements with a key.
    public mutating func remove(_ key: Identifier) { remove([key]) }

    /// Removes all elements with one of some keys.
    public mutating func remove(_ keys: Set<Identifier>) {
        guard keys.contains(where: { indicesByKey[$0] != nil }) else { return }
        boxes.removeAll { keys.contains($0.element.listKey) }
        touched.formUnion(keys)
        rebuildIndices()
    }

    private mutating func rebuildIndices() {
        indicesByKey = [:]
        indicesByName = [:]
        notableKeys = []
        for (index, box) in boxes.enumerated() { addToIndices(box.element, at: index) }
    }

    /// Sorts the elements by rank. Elements with the same rank keep their order.
    public mutating func sort(by rank: (Element) -> Int) {
        let ranks = boxes.map { rank($0.element) }
        guard zip(ranks, ranks.dropFirst()).contains(where: >) else { return }
        // The index decides between equal ranks.
        let order = ranks.indices.sorted { left, right in (ranks[left], left) < (ranks[right], right) }
        boxes = order.map { boxes[$0] }
        rebuildIndices()
    }

    /// Empties ``touched``, so that later changes can be told from those so far.
    public mutating func forgetChanges() { touched = [] }

    public var count: Int { boxes.count }
    public var isEmpty: Bool { boxes.isEmpty }

    public func last(where isWanted: (Element) -> Bool) -> Element? {
        boxes.last { isWanted($0.element) }?.element
    }
}

/// Ids that are derived from names, so that an element that is removed and added again has the same id.
public enum DerivedID {
    /// Returns a decimal number of 64 bits: two 32-bit hashes of the name.
    public static func of(_ name: String) -> String {
        let hash = Array(name.utf8).withUnsafeBytes { bytes in
            UInt64(MurmurHash3.hash(bytes, seed: 1)) << 32 | UInt64(MurmurHash3.hash(bytes, seed: 2))
        }
        return String(hash)
    }
}
