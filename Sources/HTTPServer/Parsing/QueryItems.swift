/// The parameters of a query, as HTML forms write them.
enum QueryItems {
    /// - Returns: `nil` when a name or a value is no UTF-8.
    static func parse(_ query: UnsafeRawBufferPointer) -> [(name: String, value: String)]? {
        var items: [(name: String, value: String)] = []
        for pair in query.split(separator: UInt8(ascii: "&")) {
            let separator = pair.firstIndex(of: UInt8(ascii: "=")) ?? pair.endIndex
            let value = pair[min(separator + 1, pair.endIndex)...]
            guard let name = PercentDecoding.decode(.init(rebasing: pair[..<separator]), plusIsSpace: true),
                let value = PercentDecoding.decode(.init(rebasing: value), plusIsSpace: true)
            else { return nil }
            items.append((name, value))
        }
        return items
    }
}
