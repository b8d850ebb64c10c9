extension String {
    /// Whether both texts have the same UTF-8 bytes; `==` asks for canonical equivalence only.
    @usableFromInline
    func hasSameBytes(as other: String) -> Bool {
        guard utf8.count == other.utf8.count else { return false }
        let answer = utf8.withContiguousStorageIfAvailable { left in
            other.utf8.withContiguousStorageIfAvailable { right in left.elementsEqual(right) }
        }
        return (answer ?? nil) ?? utf8.elementsEqual(other.utf8)
    }
}
