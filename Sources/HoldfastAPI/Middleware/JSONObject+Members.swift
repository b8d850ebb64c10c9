import Bucketing
import HTTPServer

extension JSONValue {
    /// The value as an object that has no other members than those named: a misspelt member must not pass for one that
    /// was left out.
    ///
    /// - Parameters:
    ///   - name: what an error calls the object.
    ///   - known: the members that it may have.
    /// - Throws: 400
    func object(
        _ name: String, knowing known: [String], at place: JSONPointer = []
    ) throws(Problem) -> JSONObject {
        guard let object else {
            throw Problem(.badRequest, "\(name) must be an object; got \(kind)", at: place)
        }
        for member in object where !known.contains(member.key) {
            let hint = Spelling.nearest(to: member.key, among: known).map { "; did you mean `\($0)`?" } ?? ""
            let list = known.map { "`\($0)`" }.joined(separator: ", ")
            let found = member.key.shortened(to: Problem.longestQuote)
            throw Problem(
                .badRequest, "\(name) has the members \(list); got `\(found)`\(hint)", at: place.appending(member.key))
        }
        return object
    }
}

extension JSONObject {
    /// A member that must be a string.
    func text(_ name: String, in place: JSONPointer = []) throws(Problem) -> String {
        guard let text = try optionalText(name, in: place) else {
            throw Problem(.badRequest, "\(name) is missing", at: place.appending(name))
        }
        return text
    }

    /// A member that is a string or absent.
    func optionalText(_ name: String, in place: JSONPointer = []) throws(Problem) -> String? {
        guard let value = self[name], !value.isNull else { return nil }
        guard let text = value.string else {
            throw Problem(.badRequest, "\(name) is a string, not \(value.kind)", at: place.appending(name))
        }
        return text
    }

    /// A member that is a number in a range, or absent.
    func optionalNumber(
        _ name: String, _ range: ClosedRange<Double>, in place: JSONPointer = []
    ) throws(Problem) -> Double? {
        guard let value = self[name], !value.isNull else { return nil }
        guard let number = value.double, range.contains(number) else {
            let found = value.double.map { "\($0)" } ?? value.kind
            let bounds = "\(Int(range.lowerBound)) to \(Int(range.upperBound))"
            throw Problem(.badRequest, "`\(name)` must be a number from \(bounds); got \(found)", at: place.appending(name))
        }
        return number
    }
}

/// Finds the name that was meant by a misspelt one.
enum Spelling {
    /// - Returns: the name with the fewest edits, of which one in three letters is the most; `nil` if none is near.
    static func nearest(to text: String, among names: [String]) -> String? {
        let letters = letters(of: text)
        let candidates = names.map { name in (name: name, edits: edits(letters, Self.letters(of: name))) }
        return candidates.filter { $0.edits <= max(1, $0.name.utf8.count / 3) }.min { $0.edits < $1.edits }?.name
    }

    /// Without case and underscores, in which names of other languages differ: `userId` is `user_id`.
    private static func letters(of text: String) -> [UInt8] {
        // What is much longer than any name is near to none.
        text.utf8.prefix(64).filter { $0 != UInt8(ascii: "_") && $0 != UInt8(ascii: "-") }
            .map { (UInt8(ascii: "A")...UInt8(ascii: "Z")).contains($0) ? $0 | 0x20 : $0 }
    }

    /// How many letters must be inserted, deleted, replaced or swapped with their neighbour (optimal string alignment).
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
