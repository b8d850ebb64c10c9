/// One operation that is measured.
struct Part {
    /// Without white space.
    let name: String
    /// Does it so many times.
    let run: (Int) -> Void

    /// - Parameter operation: its result is kept from being optimised away.
    init<Result>(_ name: String, _ operation: @escaping () -> Result) {
        self.name = name
        run = { count in
            for _ in 0..<count { use(operation()) }
        }
    }

    /// The time of one operation: the best of several rounds, as other processes can only make it longer.
    func nanoseconds() -> Int {
        var best = Int.max
        var count = 1_000
        for _ in 0..<12 {
            let time = time(count)
            best = min(best, time / count)
            // Rounds of 20 ms.
            if time < 10_000_000 { count *= 4 }
        }
        return best
    }

    private func time(_ count: Int) -> Int {
        let (seconds, attoseconds) = ContinuousClock().measure { run(count) }.components
        return Int(seconds) * 1_000_000_000 + Int(attoseconds / 1_000_000_000)
    }
}

@inline(never) private func use<Value>(_ value: Value) {}
