/** The addon, through the loader that is generated for it. */
export * from '../native.js'
