/** The addon, through the loader that is generated for it. */
import './binary.js'

export * from '../native.js'
