export * from './stores.js'
