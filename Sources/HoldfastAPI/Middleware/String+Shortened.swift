extension String {
    /// The text, or its beginning and an ellipsis that together have no more than so many bytes.
    func shortened(to limit: Int) -> String {
        guard utf8.count > limit else { return self }
        var end = utf8.index(startIndex, offsetBy: max(0, limit - "…".utf8.count))
        while end.samePosition(in: unicodeScalars) == nil { end = utf8.index(before: end) }
        return self[..<end] + "…"
    }
}
