public import JSON

/// Why a datafile cannot be used: everything that is wrong with it, each with its place.
public struct DatafileError: Error, Sendable, Equatable {
    public struct Problem: Sendable, Equatable, CustomStringConvertible {
        public var pointer: JSONPointer
        /// What is wrong there, as a phrase.
        public var reason: String

        public var description: String {
            pointer.string.isEmpty ? reason : "\(reason), at \(pointer)"
        }
    }

    /// At least one; in the order of the datafile's parts.
    public var problems: [Problem]
}

extension DatafileError: CustomStringConvertible {
    public var description: String {
        problems.map(\.description).joined(separator: "\n")
    }
}
