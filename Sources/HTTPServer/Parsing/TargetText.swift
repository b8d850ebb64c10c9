/// The target of a request that comes as a text inside another request.
public struct TargetText {
    /// The percent-encoded path.
    public let path: String
    /// As ``Request/queryItems()`` gives them.
    public let queryItems: [(name: String, value: String)]

    /// - Returns: `nil` when a request line could not hold it, or its query is no UTF-8.
    public init?(_ text: String) {
        var text = text
        let parts = text.withUTF8 { utf8 -> (path: String, queryItems: [(name: String, value: String)])? in
            let bytes = UnsafeRawBufferPointer(utf8)
            guard let target = try? RequestTarget(bytes, method: .get).pathAndQuery(),
                let items = QueryItems.parse(bytes[slice: target.query])
            else { return nil }
            return (String(decoding: bytes[slice: target.path], as: UTF8.self), items)
        }
        guard let parts else { return nil }
        path = parts.path
        queryItems = parts.queryItems
    }
}
