import Dispatch

extension DispatchTime {
    /// - Parameter end: not before this time.
    func seconds(to end: DispatchTime) -> Double {
        Double(end.uptimeNanoseconds &- uptimeNanoseconds) / 1e9
    }
}
