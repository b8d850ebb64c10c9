public import JSON
internal import Synchronization

/// An element as a datafile has it, with its text, which is made once.
public final class WrittenElement: Sendable, Equatable {
    public static let empty = WrittenElement(JSONObject())

    public let object: JSONObject
    private let known = Mutex<[UInt8]?>(nil)

    public init(_ object: JSONObject) { self.object = object }

    public var text: [UInt8] {
        known.withLock { known in
            let text = known ?? JSONValue.object(object).encoded()
            known = text
            return text
        }
    }

    public static func == (left: WrittenElement, right: WrittenElement) -> Bool {
        left === right || left.object == right.object
    }
}
