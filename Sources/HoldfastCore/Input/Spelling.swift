/// Finds the name that a misspelt one probably means.
public enum Spelling {
    /// Returns the name with the fewest edits, at most one for every three letters; `nil` if no name is that near.
    public static func nearest(to text: String, among names: [String]) -> String? {
        let letters = letters(of: text)
        let candidates = names.map { name in (name: name, edits: edits(letters, Self.letters(of: name))) }
        return candidates.filter { $0.edits <= max(1, $0.name.utf8.count / 3) }.min { $0.edits < $1.edits }?.name
    }

    /// Folds case and drops `_` and `-`, so that spellings of other languages match: `userId` is `user_id`.
    private static func letters(of text: String) -> [UInt8] {
        // A much longer text is near to no name, and would take long to compare.
        text.utf8.prefix(64).filter { $0 != UInt8(ascii: "_") && $0 != UInt8(ascii: "-") }
            .map { (UInt8(ascii: "A")...UInt8(ascii: "Z")).contains($0) ? $0 | 0x20 : $0 }
    }

    /// Returns the optimal string alignment distance: insertions, deletions, replacements, and swaps of neighbours.
    private static func edits(_ left: [UInt8], _ right: [UInt8]) -> Int {
        var beforeLast: [Int] = []
        var last = Array(0...right.count)
        for (row, letter) in left.enumerated() {
            var current = [row + 1]
            for (column, other) in right.enumerated() {
                var edits = min(last[column + 1] + 1, current[column] + 1, last[column] + (letter == other ? 0 : 1))
                if row > 0, column > 0, letter == right[column - 1], left[row - 1] == other {
                    edits = min(edits, beforeLast[column - 1] + 1)
                }
                current.append(edits)
            }
            (beforeLast, last) = (last, current)
        }
        return last[right.count]
    }
}
