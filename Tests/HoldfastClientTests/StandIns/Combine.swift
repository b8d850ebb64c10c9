// What the articles use of Combine, as its documentation declares it.

public final class PassthroughSubject<Output, Failure: Error> {
    public init() {}

    public func send(_ input: Output) {}
}
