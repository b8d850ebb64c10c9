/// A property whose value is kept in a shared box, so that copying the owner does not copy the value. Use it for large
/// values that change rarely: definitions are copied with every edit.
@propertyWrapper
public struct SharedPart<Part: Sendable & Equatable>: Sendable, Equatable {
    private final class Box: Sendable {
        let part: Part

        init(_ part: Part) { self.part = part }
    }

    private var box: Box

    public init(wrappedValue part: Part) { box = Box(part) }

    public var wrappedValue: Part {
        // Yields the value in place, without a copy.
        _read { yield box.part }
        set { box = Box(newValue) }
    }

    public static func == (left: Self, right: Self) -> Bool {
        left.box === right.box || left.box.part == right.box.part
    }
}
