/// A variable of the environment that looks like a setting and is none.
struct UnknownVariable {
    let name: String
    /// The setting's variable that was probably meant; `nil` if none is like it.
    let nearest: String?
}

extension Settings {
    /// The variables that begin like those of settings, and stand for none that was asked for.
    ///
    /// - Parameter others: names of settings that somebody else asks for.
    func unknownVariables(besides others: [String]) -> [UnknownVariable] {
        let known = names.union(others).map(Self.variable)
        return environment.keys.filter { $0.hasPrefix(Self.prefix) && !known.contains($0) && !isOfKubernetes($0) }
            .sorted().map { UnknownVariable(name: $0, nearest: Self.nearest($0, among: known)) }
    }

    /// Kubernetes tells each container of the services of its namespace, of which one may be called `holdfast`.
    private func isOfKubernetes(_ variable: String) -> Bool {
        guard environment["HOLDFAST_SERVICE_HOST"] != nil else { return false }
        return variable == "HOLDFAST_PORT" || variable.hasPrefix("HOLDFAST_PORT_") || variable.hasPrefix("HOLDFAST_SERVICE_")
    }

    /// The variable that the fewest changes lead to, if they are few.
    private static func nearest(_ variable: String, among known: [String]) -> String? {
        let text = Array(variable.utf8.dropFirst(prefix.utf8.count))
        // A long name would take long to compare, and is none that was mistyped.
        guard text.count <= 64 else { return nil }
        let candidates = known.sorted().map { (name: $0, changes: changes(from: text, to: Array($0.utf8.dropFirst(prefix.utf8.count)))) }
        return candidates.min { $0.changes < $1.changes }.flatMap { $0.changes <= text.count / 3 ? $0.name : nil }
    }

    /// How many bytes must be inserted, removed or replaced (Levenshtein's distance).
    private static func changes(from text: [UInt8], to other: [UInt8]) -> Int {
        var row = Array(0...other.count)
        for (index, byte) in text.enumerated() {
            var diagonal = row[0]
            row[0] = index + 1
            for place in other.indices {
                let replaced = diagonal + (byte == other[place] ? 0 : 1)
                diagonal = row[place + 1]
                row[place + 1] = min(replaced, diagonal + 1, row[place] + 1)
            }
        }
        return row[other.count]
    }
}
