/// Something a command could not do, as one line for the person who ran it.
struct Failure: Error, CustomStringConvertible {
    let description: String

    init(_ description: String) {
        self.description = description.split(whereSeparator: \.isNewline).joined(separator: " ")
    }
}
