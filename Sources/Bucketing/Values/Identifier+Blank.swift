extension Identifier {
    /// Whether nothing but white space is in it. The reference SDK buckets nobody into a thing with such a key.
    var isBlank: Bool {
        string.allSatisfy(\.isWhitespace)
    }
}
