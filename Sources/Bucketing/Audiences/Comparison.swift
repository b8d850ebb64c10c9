enum Comparison: Sendable {
    case equal
    case greater
    case greaterOrEqual
    case less
    case lessOrEqual

    func holds<Value: Comparable>(_ left: Value, _ right: Value) -> Bool {
        switch self {
        case .equal: left == right
        case .greater: left > right
        case .greaterOrEqual: left >= right
        case .less: left < right
        case .lessOrEqual: left <= right
        }
    }
}
