public import Bucketing

/// Finds the known name that was probably meant by an unknown one.
public enum Spelling {
    /// The maximum number of names that are compared. Bounds the time of an error response.
    private static let nameLimit = 1_000
    /// The longest text that is compared, in bytes. The time of a comparison grows with the product of both lengths.
    private static let lengthLimit = 64

    /// The words of other products, as ``letters(of:)`` returns them, with the names that mean the same here.
    private static let synonyms: [String: [String]] = [
        "active": ["running"], "allocation": ["traffic", "weight"], "amount": ["value"], "average": ["mean"],
        "avg": ["mean"], "binomial": ["conversion"], "bool": ["boolean"], "condition": ["audience"],
        "conditions": ["audience"], "contains": ["substring"], "default": ["otherwise"], "disabled": ["paused"],
        "endswith": ["ends_with"], "ended": ["concluded"], "eq": ["exact"], "equals": ["exact"], "event": ["goal"],
        "eventkey": ["goal"], "eventname": ["goal"], "experimentid": ["experiment"], "experimentkey": ["experiment"],
        "finished": ["concluded"], "float": ["double", "number"], "gte": ["ge"], "int": ["integer", "number"],
        "live": ["running"], "lte": ["le"], "number": ["double"], "object": ["json"], "percent": ["traffic", "weight"],
        "percentage": ["traffic", "weight"], "proportion": ["conversion"], "rate": ["conversion"],
        "regex": ["matches"], "revenue": ["value", "total"], "started": ["running"], "stopped": ["concluded"],
        "sum": ["total"], "targeting": ["audience"], "text": ["string"], "time": ["timestamp"],
        "treatment": ["variation_key"], "treatments": ["variations"], "userkey": ["user_id"],
        "variant": ["variation_key", "variation"], "variants": ["variations"], "variation": ["variation_key"],
    ]

    /// Returns the name that was probably meant; `nil` if no name is similar. Tries in this order:
    ///
    /// 1. a synonym in another product: `variant` for `variation_key`;
    /// 2. the name with the fewest edits, at most one for every three letters: `trafic` for `traffic`;
    /// 3. the name with the longest common beginning: `navi` for `navigation`.
    public static func nearest(to text: String, among names: some Sequence<String>) -> String? {
        let given = letters(of: text)
        for synonym in synonyms[String(decoding: given, as: UTF8.self)] ?? [] {
            if names.contains(synonym) { return synonym }
        }
        guard text.utf8.count <= lengthLimit else { return nil }
        var rows = EditRows(given)
        var nearest: (name: String, edits: Int)?
        var withSameBeginning: (name: String, shared: Int)?
        for name in names.prefix(nameLimit) where name.utf8.count <= lengthLimit {
            let letters = letters(of: name)
            // Only a name with fewer edits than the best one so far counts.
            let limit = min(max(1, letters.count / 3), (nearest?.edits ?? .max) - 1)
            if let edits = rows.edits(to: letters, atMost: limit) {
                if edits == 0 { return name }
                nearest = (name, edits)
            }
            let shared = zip(given, letters).prefix { $0 == $1 }.count
            if hasSameBeginning(given.count, letters.count, shared: shared), shared > withSameBeginning?.shared ?? 0 {
                withSameBeginning = (name, shared)
            }
        }
        return nearest?.name ?? withSameBeginning?.name
    }

    /// Returns the first name that the text probably misspells: they differ by one or two edits, and by at most one
    /// edit for every three letters. Unlike ``nearest(to:among:)``, this ignores synonyms and common beginnings.
    public static func misspelt(_ text: String, among names: some Sequence<String>) -> String? {
        let given = letters(of: text)
        let limit = min(2, given.count / 3)
        guard limit > 0, text.utf8.count <= lengthLimit else { return nil }
        var rows = EditRows(given)
        return names.prefix(nameLimit).first {
            $0.utf8.count <= lengthLimit && rows.edits(to: letters(of: $0), atMost: limit) != nil
        }
    }

    /// Returns the end of the error message for an unknown name: `; did you mean 'traffic'?`, or an empty text.
    public static func hint(for text: String, among names: some Sequence<String>) -> String {
        nearest(to: text, among: names).map { "; did you mean '\($0)'?" } ?? ""
    }

    /// Returns the end of the error message for an unknown key or id.
    public static func hint(for name: Identifier, among names: some Sequence<Identifier>) -> String {
        hint(for: name.string, among: names.lazy.map(\.string))
    }

    /// Whether one text is a beginning of the other (`navi`, `navigation`), or their common beginning is at least half
    /// of the longer one (`variants`, `variations`).
    private static func hasSameBeginning(_ count: Int, _ other: Int, shared: Int) -> Bool {
        shared >= 3 && shared == min(count, other) || shared >= 4 && shared * 2 >= max(count, other)
    }

    /// Returns the bytes in lower case without `_` and `-`, so that spellings by other conventions match: `userId`
    /// equals `user_id`.
    private static func letters(of text: String) -> [UInt8] {
        let upperCase = UInt8(ascii: "A")...UInt8(ascii: "Z")
        let lowerCaseBit: UInt8 = 0x20
        return text.utf8.prefix(lengthLimit)
            .filter { $0 != UInt8(ascii: "_") && $0 != UInt8(ascii: "-") }
            .map { upperCase.contains($0) ? $0 | lowerCaseBit : $0 }
    }

    /// Computes edit distances from one text (optimal string alignment): insertions, deletions, replacements, and swaps
    /// of neighbours. Of the usual table only the last three rows are kept, and they are reused for all names.
    private struct EditRows {
        private let text: [UInt8]
        private var beforeLast: [Int]
        private var last: [Int]
        private var current: [Int]

        init(_ text: [UInt8]) {
            self.text = text
            beforeLast = Array(repeating: 0, count: text.count + 1)
            last = beforeLast
            current = beforeLast
        }

        /// Returns the distance; `nil` if it exceeds the limit.
        mutating func edits(to other: [UInt8], atMost limit: Int) -> Int? {
            guard abs(text.count - other.count) <= limit else { return nil }
            for column in last.indices { last[column] = column }
            for (row, letter) in other.enumerated() {
                current[0] = row + 1
                for (column, own) in text.enumerated() {
                    var edits = min(
                        last[column + 1] + 1, current[column] + 1, last[column] + (letter == own ? 0 : 1))
                    if row > 0, column > 0, letter == text[column - 1], other[row - 1] == own {
                        edits = min(edits, beforeLast[column - 1] + 1)
                    }
                    current[column + 1] = edits
                }
                // Each value comes from one of the two rows before, so later rows cannot fall below their minimum.
                guard min(current.min() ?? 0, last.min() ?? 0) <= limit else { return nil }
                (beforeLast, last, current) = (last, current, beforeLast)
            }
            return last[text.count] <= limit ? last[text.count] : nil
        }
    }
}
